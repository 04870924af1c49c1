package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/tollhouse-ai/gateway/video"
)

const videosPath = "/v1/videos/generations"

// submitTime is how long a submission may take: as long as an upstream has to
// begin its answer.
const submitTime = 10 * time.Minute

func videoSubmit(p *program) *command {
	c := newCommand("video submit", "ask for a video, and wait for it if told to")
	c.details = "What the flags do not say, --body does: a JSON object of the API's fields in a file, or - for standard input.\n" +
		"The video goes on by itself whatever becomes of this command, and is charged when it is there."
	c.examples = []string{
		`TOLLHOUSE_KEY=sk-... tollhouse video submit --model beta2.6-t2v --prompt Rain --duration 5 --wait`,
		"tollhouse video submit --model gamma-2-0-260128 --body request.json --webhook https://example.com/hook",
	}
	var w wish
	w.flags(c)
	wait := c.flags.Bool("wait", false, "wait until the video has ended")
	again := c.flags.String("idempotency-key", "", "a name for this submission, with which it can be repeated safely")
	a := newAPI(p, c)
	c.run = func(ctx context.Context, _ []string) error {
		body, err := w.body(p.stdin)
		if err != nil {
			return err
		}
		d, err := a.find()
		if err != nil {
			return err
		}
		ctx, stop := p.interruptible(ctx)
		defer stop()
		r, err := a.submit(ctx, d, body, *again)
		if err != nil {
			return err
		}
		if *wait {
			return a.wait(ctx, d, r)
		}
		if err := a.show(r); err != nil || a.json {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "\n`tollhouse video wait %s` waits for it.\n", r.ID)
		return err
	}
	return c
}

// submit asks once. An answer that is lost is not asked for again: the video may
// have been taken.
func (a *api) submit(ctx context.Context, d *door, body []byte, again string) (*video.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, submitTime)
	defer cancel()
	header := http.Header{}
	if again != "" {
		header.Set("Idempotency-Key", again)
	}
	data, err := d.ask(ctx, http.MethodPost, videosPath, body, header)
	var away *errAway
	if errors.As(err, &away) && away.asked {
		advice := "it may have taken the video all the same. With an --idempotency-key a submission can be repeated safely"
		if again != "" {
			advice = "repeat the command with the same --idempotency-key to learn of the video that it may have taken"
		}
		return nil, fmt.Errorf("%w; %s", err, advice)
	}
	if err != nil {
		return nil, err
	}
	return readRecord(d, data)
}

func videoGet(p *program) *command {
	c := newCommand("video get", "show a video as it is now", "ID")
	c.examples = []string{"tollhouse video get vid_1KBG4T92JSZ3QXK7HWM5A2LTFD --json"}
	a := newAPI(p, c)
	c.run = func(ctx context.Context, args []string) error {
		d, err := a.find()
		if err != nil {
			return err
		}
		r, err := a.get(ctx, d, args[0])
		if err != nil {
			return err
		}
		return a.show(r)
	}
	return c
}

func videoWait(p *program) *command {
	c := newCommand("video wait", "wait until a video has ended, and show it", "ID")
	c.details = "It ends with 1 if the video failed. An interrupt ends the waiting, not the video."
	c.examples = []string{"tollhouse video wait vid_1KBG4T92JSZ3QXK7HWM5A2LTFD"}
	a := newAPI(p, c)
	c.run = func(ctx context.Context, args []string) error {
		d, err := a.find()
		if err != nil {
			return err
		}
		ctx, stop := p.interruptible(ctx)
		defer stop()
		r, err := a.get(ctx, d, args[0])
		if err != nil {
			return err
		}
		return a.wait(ctx, d, r)
	}
	return c
}

func (a *api) get(ctx context.Context, d *door, id string) (*video.Response, error) {
	ctx, cancel := context.WithTimeout(ctx, a.p.answerTime())
	defer cancel()
	data, err := d.ask(ctx, http.MethodGet, videosPath+"/"+url.PathEscape(id), nil, nil)
	if err != nil {
		return nil, err
	}
	return readRecord(d, data)
}

func readRecord(d *door, data []byte) (*video.Response, error) {
	r := new(video.Response)
	err := json.Unmarshal(data, r, jsontext.AllowDuplicateNames(true)) // as upstreams may
	if err != nil || r.ID == "" || r.Status == "" {
		return nil, stranger(d.base, http.StatusOK)
	}
	r.Raw = data
	return r, nil
}

// show prints a record.
func (a *api) show(r *video.Response) error {
	if a.json {
		return writeJSON(a.p.stdout, r.Raw)
	}
	t := &table{head: []string{"ID", r.ID}}
	t.add("MODEL", r.Model)
	t.add("STATUS", string(r.Status))
	t.add("SUBMITTED", moment(r.CreatedAt))
	if r.Status.Terminal() {
		t.add("ENDED", moment(r.UpdatedAt))
	}
	for _, clip := range r.Content {
		if clip.VideoURL != "" {
			t.add("VIDEO", shortURL(clip.VideoURL))
		}
	}
	if r.Error != nil {
		t.add("ERROR", r.Error.Message+" ("+r.Error.Code+")")
	}
	return t.write(a.p.stdout)
}

func moment(unix int64) string { return time.Unix(unix, 0).UTC().Format(time.RFC3339) }

// shortURL is an address as it is, but for one that holds the video itself.
func shortURL(text string) string {
	const most = 4096
	if len(text) <= most {
		return text
	}
	return fmt.Sprintf("%.40s… (%d characters; --json has them)", text, len(text))
}
