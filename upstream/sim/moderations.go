package sim

import (
	"context"
	"strings"

	moderationsop "github.com/tollhouse-ai/gateway/internal/operation/moderations"
	"github.com/tollhouse-ai/gateway/moderations"
	"github.com/tollhouse-ai/gateway/upstream"
)

// categories are what the simulated vendor tells apart: OpenAI's names.
var categories = [...]string{
	"harassment", "harassment/threatening", "hate", "hate/threatening", "illicit", "illicit/violent",
	"self-harm", "self-harm/instructions", "self-harm/intent", "sexual", "sexual/minors", "violence", "violence/graphic",
}

// moderate answers a request to judge texts and images. It understands nothing: a text is
// harmful in the categories that it names, and an image never is.
func (u *Upstream) moderate(ctx context.Context, call *upstream.Call, f Fault) (*upstream.Reply, error) {
	r, _, err := request(u, call, moderationsop.Parse, obeys[*moderationsop.Request])
	if err != nil {
		return nil, err
	}
	items := r.Items()
	results := make([]moderations.Result, 0, len(items))
	if r.Together() {
		results = append(results, judge(items...))
	} else {
		for _, item := range items {
			results = append(results, judge(item))
		}
	}
	answer := object{"results": results, "model": call.Model, "simulated": true}
	return u.sendJSON(ctx, answer, f)
}

// judge is the result of parts that are judged together.
func judge(items ...moderations.Part) moderations.Result {
	r := moderations.Result{Categories: map[string]bool{}, CategoryScores: map[string]float64{}, CategoryAppliedInputTypes: map[string][]string{}}
	for _, category := range categories {
		named := false
		for _, item := range items {
			named = named || strings.Contains(strings.ToLower(item.Text), category)
		}
		r.Categories[category], r.CategoryScores[category], r.CategoryAppliedInputTypes[category] = named, 0, []string{"text"}
		if named {
			r.Flagged, r.CategoryScores[category] = true, 1
		}
	}
	return r
}
