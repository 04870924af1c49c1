package sim

import (
	"strconv"
	"strings"
	"time"
)

// nestedTask is the answer of the vendor that puts a task into `output`.
type nestedTask struct {
	RequestID string       `json:"request_id"`
	Output    nestedOutput `json:"output"`
	Usage     *nestedUsage `json:"usage,omitzero"`
}

type nestedOutput struct {
	ID        string `json:"task_id"`
	Status    string `json:"task_status"`
	Submitted string `json:"submit_time,omitzero"`
	Scheduled string `json:"scheduled_time,omitzero"`
	Ended     string `json:"end_time,omitzero"`
	Prompt    string `json:"orig_prompt,omitzero"`
	VideoURL  string `json:"video_url,omitzero"`
	Code      string `json:"code,omitzero"`
	Message   string `json:"message,omitzero"`
}

type nestedUsage struct {
	Duration int64  `json:"duration"` // seconds, as are those below
	Input    int64  `json:"input_video_duration"`
	Output   int64  `json:"output_video_duration"`
	Count    int64  `json:"video_count"`
	SR       int64  `json:"SR"`
	Ratio    string `json:"ratio"`
}

func (t *task) toldNested(p phase, total time.Duration, report Report) nestedTask {
	at := func(after time.Duration) string { // the vendor's own time of day
		return t.begun.Add(after).In(time.FixedZone("", 8*60*60)).Format("2006-01-02 15:04:05.000")
	}
	o := nestedOutput{ID: t.id, Status: t.word(p), Submitted: at(0)}
	if p > isQueued {
		o.Scheduled = at(total / 4)
	}
	r := nestedTask{RequestID: "sim-" + t.id, Output: o}
	if p < hasEnded {
		return r
	}
	r.Output.Ended = at(total)
	switch t.ending {
	case VideoExpired:
		r.Output = nestedOutput{ID: t.id, Status: o.Status} // the vendor does not know it any more
	case VideoFailed:
		r.Output.Code, r.Output.Message = "InternalError", failureText
	case VideoMade, VideoEmpty:
		r.Output.Prompt, r.Output.VideoURL = t.prompt, t.link()
		r.Usage = t.nestedUsage(report)
	}
	return r
}

func (t *task) nestedUsage(report Report) *nestedUsage {
	switch report {
	case Withheld:
		return nil
	case ZeroUsage:
		return &nestedUsage{}
	}
	lines, _ := strconv.ParseInt(strings.TrimSuffix(t.resolution, "p"), 10, 64) // 4k is none of this vendor's
	return &nestedUsage{Duration: t.seconds, Output: t.seconds, Count: 1, SR: lines, Ratio: t.ratio}
}
