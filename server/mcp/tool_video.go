package mcp

import gateway "github.com/tollhouse-ai/gateway"

// waitField is the argument of both tools of videos.
var waitField = field{
	name: "wait", kind: truth, preset: false,
	about: "Wait for the video: for 45 seconds, or for some minutes if this program is told of the progress. A video that is not there then goes on: ask again with get_video.",
}

func videoTool() *tool {
	return &tool{
		name: "generate_video", title: "Make a video",
		about: "Starts to make a video from a description, and pictures or other videos where the model takes them. It takes minutes and goes on by itself, " +
			"whatever becomes of this call: the result has an id, with which get_video tells when it is there. It is charged only if it succeeds.",
		fields: []field{
			modelField("The model that makes the video. Of beta models, -t2v make it from text, -i2v from a first picture, -r2v from references."),
			{name: "prompt", kind: text, about: "What the video is to show. Needed unless it is made from pictures."},
			{name: "duration", kind: integer, low: 1, high: 3600, about: "Seconds. It decides the cost. Most models make 2 to 15 seconds; if left out, beta models make 5."},
			{name: "resolution", kind: text, enum: []string{"480p", "720p", "1080p"}, about: "It decides the cost. If left out, beta models make 720p."},
			{name: "aspect_ratio", kind: text, about: "Such as 16:9, 9:16 or 1:1."},
			{name: "first_frame", kind: text, about: "The https URL of a picture with which the video begins."},
			{name: "last_frame", kind: text, about: "The https URL of a picture with which the video ends, where the model can do that."},
			{name: "reference_images", kind: texts, high: 9, about: "https URLs of pictures of what appears in the video."},
			{name: "reference_videos", kind: texts, high: 3, about: "https URLs of videos that the model is to follow."},
			{name: "audio", kind: text, about: "The https URL of a sound that the video is to go with, where the model can do that."},
			{name: "with_sound", kind: truth, about: "Whether the video is to have sound, where the model can choose. It may decide the cost."},
			{name: "seed", kind: integer, low: 0, high: 1<<32 - 1, about: "The same seed and prompt give a similar video."},
			waitField,
		},
		models: kinds(gateway.KindVideo),
		output: outputOf[videoResult](),
		ask:    askVideo, answer: (*call).answerVideo,
	}
}
