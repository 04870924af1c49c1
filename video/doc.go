// Package video is the video capability: the rules of its model families, the
// life of a task from submission to its end, and what of it is kept.
package video
