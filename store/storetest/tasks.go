package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/video"
)

// Studio is a store of tasks with what belongs to it.
type Studio struct {
	video.Store
	// Answers is where the store keeps the answers that come with a change.
	Answers idempotency.Store
	// Notices are the ids of the notices that it has made, in any order.
	Notices func() []string
}

// Tasks runs the rules of video.Store. open gives each test an empty store, whose
// clock is now.
func Tasks(t *testing.T, open func(t testing.TB, now func() time.Time) Studio) {
	for name, test := range tasking {
		t.Run(name, func(t *testing.T) {
			clock := newClock(morning)
			test(studio{Studio: open(t, clock.Now), t: t, clock: clock})
		})
	}
}

// tasking are the sentences of video.Store.
var tasking = map[string]func(studio){
	"AKeyHasNoMoreOpenTasksThanItMay":                      noMoreThanItMay,
	"NoLimitMeansNone":                                     noLimit,
	"TheSameSubmissionWithinTheWindowIsAConflict":          sameSubmission,
	"WhatWasNeverAcceptedBlocksForTheWindowOnly":           unknownSubmission,
	"AnIdIsGivenOnce":                                      idOnce,
	"AStepIsMadeFromTheVersionBeforeAndOnce":               stepOnce,
	"OfEightThatMakeAStepOneDoesAndOneNoticeIsMade":        oneNotice,
	"AnAnswerIsKeptWithItsStep":                            answerKept,
	"ATaskIsFoundByEitherIdAndByItsAccountOnly":            eitherID,
	"EveryFieldOfATaskIsKept":                              everyField,
	"WhatLeasesTakeIsWhatWasPolledLongestAgo":              longestAgo,
	"ALeaseKeepsOthersAwayUntilItEnds":                     leaseEnds,
	"ATaskThatHasEndedIsNobodys":                           endedIsNobodys,
	"OfManyThatClaimAtTheSameTimeEachTaskIsOnesOwn":        claimTogether,
	"PurgeForgetsWhatIsDueAndNothingElse":                  purgeDue,
	"WhatWasDroppedIsForgottenAndLeavesTheKeyItsPlaceOpen": dropped,
}

// studio is a store of tasks in a test.
type studio struct {
	Studio
	t     testing.TB
	clock *clock
}

func (s studio) ok(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// film is a submission of acme's key k1, unlike any other.
func film(id string) video.CreateTask {
	n := video.CreateTask{Task: video.Task{
		ID: "vid_" + id, Account: "acme", Key: "k1", RequestID: "req_" + id, Model: "beta-2.6-t2v", Family: video.FamilyBeta,
		State: video.Submitting, CreatedAt: morning, UpdatedAt: morning, ExpiresAt: morning.Add(48 * time.Hour),
	}}
	copy(n.Task.Fingerprint[:], id)
	return n
}

// next is the task a step on.
func next(t video.Task, s video.State, at time.Time) video.Task {
	t.State, t.UpdatedAt = s, at.UTC()
	t.Version++
	return t
}

// accepted is a submitted task that an upstream took.
func accepted(t video.Task, upstream string, at time.Time) video.Task {
	t = next(t, video.Processing, at)
	t.UpstreamID, t.Channel, t.AcceptedAt = upstream, "main", at.UTC()
	return t
}

func (s studio) add(n video.CreateTask) video.Task {
	s.t.Helper()
	s.ok(s.Add(s.t.Context(), n))
	return n.Task
}

func (s studio) refused(n video.CreateTask, code fault.Code) error {
	s.t.Helper()
	err := s.Add(s.t.Context(), n)
	if !fault.Is(err, code) {
		s.t.Fatalf("%s: got %v, want %s", n.Task.ID, err, code)
	}
	s.wantNone(n.Task.Account, n.Task.ID)
	return err
}

// change makes a step that must be made.
func (s studio) change(t video.Task) video.Task {
	s.t.Helper()
	made, err := s.Change(s.t.Context(), video.Step{Task: t}, nil)
	if !made || err != nil {
		s.t.Fatalf("the step of %s to %s: %t, %v", t.ID, t.State, made, err)
	}
	return t
}

// wantStale makes a step that must not be made.
func (s studio) wantStale(step video.Step, why string) {
	s.t.Helper()
	if made, err := s.Change(s.t.Context(), step, nil); made || err != nil {
		s.t.Errorf("%s: %t, %v", why, made, err)
	}
}

func (s studio) find(account, id string) *video.Task {
	s.t.Helper()
	found, err := s.Find(s.t.Context(), account, id)
	s.ok(err)
	return found
}

func (s studio) want(t video.Task) {
	s.t.Helper()
	if diff := cmp.Diff(&t, s.find(t.Account, t.ID)); diff != "" {
		s.t.Fatalf("(-want +got):\n%s", diff)
	}
}

func (s studio) wantNone(account, id string) {
	s.t.Helper()
	if found := s.find(account, id); found != nil {
		s.t.Errorf("%s finds %q: %+v", account, id, found)
	}
}

// wantClaimed claims for a minute and compares the ids.
func (s studio) wantClaimed(owner string, n int, want ...string) {
	s.t.Helper()
	tasks, err := s.Claim(s.t.Context(), owner, s.clock.Now().Add(time.Minute), n)
	s.ok(err)
	got := []string{}
	for _, t := range tasks {
		got = append(got, strings.TrimPrefix(t.ID, "vid_"))
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
		s.t.Fatalf("%s claims %d at %s (-want +got):\n%s", owner, n, s.clock.Now(), diff)
	}
}

func noMoreThanItMay(s studio) {
	limited := func(id string) video.CreateTask {
		n := film(id)
		n.Most = 2
		return n
	}
	first, _ := s.add(limited("a")), s.add(limited("b"))
	if err := s.refused(limited("c"), fault.ConcurrencyExceeded); fault.From(err).HTTPStatus() != 429 {
		s.t.Error(err)
	}
	other, elsewhere := limited("d"), limited("e")
	other.Task.Key, elsewhere.Task.Account = "k2", "zeta"
	s.add(other)
	s.add(elsewhere)
	first = s.change(accepted(first, "up-a", morning))
	s.refused(limited("f"), fault.ConcurrencyExceeded)
	s.change(next(first, video.Failed, morning))
	s.add(limited("g"))
	s.refused(limited("h"), fault.ConcurrencyExceeded)
	s.ok(s.Drop(s.t.Context(), "vid_b"))
	s.add(limited("i"))
	s.refused(limited("j"), fault.ConcurrencyExceeded)
}

func noLimit(s studio) {
	for i := range 10 {
		s.add(film(fmt.Sprint(i)))
	}
	n := film("last")
	n.Most = 10
	s.refused(n, fault.ConcurrencyExceeded)
}

func sameSubmission(s studio) {
	same := func(id string, retried bool) video.CreateTask {
		n := film(id)
		n.Window, n.Retried, n.Task.Fingerprint = 5*time.Second, retried, [32]byte{1}
		n.Task.CreatedAt = s.clock.Now().UTC()
		return n
	}
	first := s.add(same("a", false))
	s.clock.Set(morning.Add(time.Minute))
	err := s.refused(same("b", false), fault.IdempotencyConflict) // it is being submitted still
	if f := fault.From(err); f.HTTPStatus() != 409 || f.Retry != fault.RetryNo || !strings.Contains(f.Message, "vid_a") {
		s.t.Errorf("%+v", f)
	}
	first = s.change(accepted(first, "up-1", s.clock.Now()))
	s.clock.Set(morning.Add(time.Minute + 5*time.Second - 1))
	s.refused(same("b", false), fault.IdempotencyConflict)
	s.change(next(first, video.Failed, s.clock.Now()))
	s.refused(same("b", false), fault.IdempotencyConflict) // it was accepted a moment ago
	s.clock.Set(morning.Add(time.Minute + 5*time.Second))
	s.add(same("b", false))
	s.add(same("c", true)) // meant to be another
	s.refused(same("d", false), fault.IdempotencyConflict)
	s.ok(s.Drop(s.t.Context(), "vid_b"))
	s.ok(s.Drop(s.t.Context(), "vid_c"))
	s.add(same("d", false)) // what was refused does not block
	n := same("e", false)
	n.Window = 0
	s.add(n)
	n = same("f", false)
	n.Task.Fingerprint = [32]byte{2}
	s.add(n)
}

func unknownSubmission(s studio) {
	n := film("a")
	n.Window = 5 * time.Second
	first := s.add(n)
	s.change(next(first, video.Unknown, morning))
	s.clock.Set(morning.Add(5*time.Second - 1))
	n.Task.ID = "vid_b"
	s.refused(n, fault.IdempotencyConflict)
	s.clock.Set(morning.Add(5 * time.Second))
	s.add(n)
}

func idOnce(s studio) {
	first := s.add(film("a"))
	n := film("b")
	n.Task.ID, n.Task.Model = first.ID, "another"
	if err := s.Add(s.t.Context(), n); err == nil {
		s.t.Error("an id was given twice")
	}
	s.want(first)
}
