package billing

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the zones of the tests, wherever they run

	"github.com/google/go-cmp/cmp"

	"github.com/tollhouse-ai/gateway/fault"
)

func zone(t *testing.T, name string) *time.Location {
	t.Helper()
	z, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func TestAWindowIsThatOfItsCalendar(t *testing.T) {
	const berlin, york, howe, apia, havana = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Apia", "America/Havana"
	for _, c := range []struct {
		name                string
		every               Period
		zone, begins        string
		now, begin, endTime string
	}{
		{"an hour", EveryHour, "", "", "2026-11-28T14:18:05Z", "2026-11-28T14:00:00Z", "2026-11-28T15:00:00Z"},
		{"the first moment of an hour", EveryHour, "", "", "2026-11-28T14:00:00Z", "2026-11-28T14:00:00Z", "2026-11-28T15:00:00Z"},
		{"an hour before 1970", EveryHour, "", "", "1969-12-31T23:30:00Z", "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},
		{"an hour of a zone at half an hour is one of UTC", EveryHour, "Asia/Kolkata", "", "2026-11-28T14:40:00Z", "2026-11-28T14:00:00Z", "2026-11-28T15:00:00Z"},

		{"a day", EveryDay, "", "", "2026-11-28T14:18:00Z", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"the last moment of a day", EveryDay, "", "", "2026-11-28T23:59:59.999999999Z", "2026-11-28T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"a day that begins at six, before six", EveryDay, "", "06:00", "2026-11-28T05:59:59Z", "2026-11-27T06:00:00Z", "2026-11-28T06:00:00Z"},
		{"a day that begins at six, at six", EveryDay, "", "06:00", "2026-11-28T06:00:00Z", "2026-11-28T06:00:00Z", "2026-11-29T06:00:00Z"},
		{"a day in Berlin", EveryDay, berlin, "", "2026-11-28T23:30:00Z", "2026-11-28T23:00:00Z", "2026-11-29T23:00:00Z"},
		{"a day of 23 hours in Berlin", EveryDay, berlin, "", "2026-03-29T12:00:00Z", "2026-03-28T23:00:00Z", "2026-03-29T22:00:00Z"},
		{"a day of 25 hours in Berlin", EveryDay, berlin, "", "2026-10-25T12:00:00Z", "2026-10-24T22:00:00Z", "2026-10-25T23:00:00Z"},
		{"a day that begins in the hour that Berlin skips", EveryDay, berlin, "02:30", "2026-03-29T12:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"},
		{"the moment before it", EveryDay, berlin, "02:30", "2026-03-29T00:59:59Z", "2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z"},
		{"a day that begins in the hour that Berlin repeats", EveryDay, berlin, "02:30", "2026-10-25T00:45:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"the second time that hour comes", EveryDay, berlin, "02:30", "2026-10-25T01:15:00Z", "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"},
		{"a day that begins in the hour that New York skips", EveryDay, york, "02:00", "2026-03-08T07:00:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"},
		{"a day that begins in the hour that New York repeats", EveryDay, york, "01:30", "2026-11-01T06:45:00Z", "2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"},
		{"a day that begins in the half hour that Lord Howe skips", EveryDay, howe, "02:15", "2026-10-03T15:40:00Z", "2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"},
		{"a day that begins in the half hour that Lord Howe repeats", EveryDay, howe, "01:45", "2026-04-04T15:20:00Z", "2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"},
		{"a midnight that Havana repeats", EveryDay, havana, "", "2026-11-01T05:30:00Z", "2026-11-01T04:00:00Z", "2026-11-02T05:00:00Z"},
		{"a midnight that Havana skips", EveryDay, havana, "", "2026-03-08T05:00:00Z", "2026-03-08T05:00:00Z", "2026-03-09T04:00:00Z"},
		{"the day before one that Apia skips", EveryDay, apia, "", "2011-12-30T09:59:59Z", "2011-12-29T10:00:00Z", "2011-12-30T10:00:00Z"},
		{"the day after one that Apia skips", EveryDay, apia, "", "2011-12-30T10:00:00Z", "2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"},

		{"a week", EveryWeek, "", "", "2026-11-28T14:18:00Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"a Sunday belongs to the week before", EveryWeek, "", "", "2026-11-29T23:59:59Z", "2026-11-23T00:00:00Z", "2026-11-30T00:00:00Z"},
		{"a Monday", EveryWeek, "", "", "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z", "2026-12-07T00:00:00Z"},
		{"a week from Sunday on", EveryWeek, "", "sunday", "2026-11-28T14:18:00Z", "2026-11-22T00:00:00Z", "2026-11-29T00:00:00Z"},
		{"a week over New Year", EveryWeek, "", "", "2027-01-01T00:00:00Z", "2026-12-28T00:00:00Z", "2027-01-04T00:00:00Z"},
		{"a week with the short day in Berlin", EveryWeek, berlin, "", "2026-03-29T12:00:00Z", "2026-03-22T23:00:00Z", "2026-03-29T22:00:00Z"},

		{"a month", EveryMonth, "", "", "2026-11-28T14:18:00Z", "2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z"},
		{"31 January", EveryMonth, "", "", "2027-01-31T23:59:59Z", "2027-01-01T00:00:00Z", "2027-02-01T00:00:00Z"},
		{"a month from the 15th on, before it", EveryMonth, "", "15", "2026-11-14T23:59:59Z", "2026-10-15T00:00:00Z", "2026-11-15T00:00:00Z"},
		{"a month from the 15th on, after it", EveryMonth, "", "15", "2026-11-15T00:00:00Z", "2026-11-15T00:00:00Z", "2026-12-15T00:00:00Z"},
		{"a month from the last on, in January", EveryMonth, "", "31", "2027-01-31T00:00:00Z", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"a month from the last on, in February", EveryMonth, "", "31", "2027-02-27T23:59:59Z", "2027-01-31T00:00:00Z", "2027-02-28T00:00:00Z"},
		{"a month from the last on, in a leap year", EveryMonth, "", "31", "2028-02-29T12:00:00Z", "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"},
		{"a month from the 30th on, over February", EveryMonth, "", "30", "2028-03-01T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-30T00:00:00Z"},
		{"a month from the 29th on, on 29 February", EveryMonth, "", "29", "2028-02-29T00:00:00Z", "2028-02-29T00:00:00Z", "2028-03-29T00:00:00Z"},
		{"a month from the 29th on, without 29 February", EveryMonth, "", "29", "2027-02-28T00:00:00Z", "2027-02-28T00:00:00Z", "2027-03-29T00:00:00Z"},
		{"a month in Berlin", EveryMonth, berlin, "", "2026-10-31T23:00:00Z", "2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z"},
		{"a month in New York", EveryMonth, york, "", "2026-12-01T04:59:59Z", "2026-11-01T04:00:00Z", "2026-12-01T05:00:00Z"},

		{"a quarter", EveryQuarter, "", "", "2026-11-28T14:18:00Z", "2026-10-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		{"a quarter from the last on, before it", EveryQuarter, "", "31", "2026-04-29T00:00:00Z", "2026-01-31T00:00:00Z", "2026-04-30T00:00:00Z"},
		{"a year", EveryYear, "", "", "2028-02-29T12:00:00Z", "2028-01-01T00:00:00Z", "2029-01-01T00:00:00Z"},
		{"a year from 15 January on", EveryYear, "", "15", "2028-01-14T12:00:00Z", "2027-01-15T00:00:00Z", "2028-01-15T00:00:00Z"},

		{"a duration", "4s", "", "", "2026-11-28T14:18:05Z", "2026-11-28T14:18:04Z", "2026-11-28T14:18:08Z"},
		{"a duration that no day is a multiple of", "36h", "", "", "1970-01-02T12:00:00Z", "1970-01-02T12:00:00Z", "1970-01-04T00:00:00Z"},
		{"a duration before 1970", "36h", "", "", "1969-12-31T00:00:00Z", "1969-12-30T12:00:00Z", "1970-01-01T00:00:00Z"},
		{"a duration from a time on", "24h", "", "2026-11-27T18:00:00+02:00", "2026-11-28T15:59:59Z", "2026-11-27T16:00:00Z", "2026-11-28T16:00:00Z"},
		{"a duration before its first time", "24h", "", "2026-11-27T16:00:00Z", "2026-11-26T00:00:00Z", "2026-11-25T16:00:00Z", "2026-11-26T16:00:00Z"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := BudgetSpec{Every: c.every, Zone: zone(t, c.zone), Begins: c.begins}
			if err := spec.Validate(); err != nil {
				t.Fatal(err)
			}
			now, err := time.Parse(time.RFC3339Nano, c.now)
			if err != nil {
				t.Fatal(err)
			}
			begin, end := Window(spec, now)
			if got, want := begin.Format(time.RFC3339)+" to "+end.Format(time.RFC3339), c.begin+" to "+c.endTime; got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	if begin, end := Window(BudgetSpec{}, time.Unix(1e9, 0)); !begin.IsZero() || !end.IsZero() {
		t.Errorf("for ever: from %s to %s", begin, end)
	}
}

// Windows follow each other without a gap, however the clocks of a zone are set, so that no
// moment has two and none begins twice.
func TestEachMomentIsInOneWindow(t *testing.T) {
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Asia/Kolkata"} {
		for _, spec := range []BudgetSpec{
			{Every: EveryHour}, {Every: EveryDay}, {Every: EveryDay, Begins: "02:30"}, {Every: EveryWeek, Begins: "sunday"}, {Every: EveryMonth, Begins: "31"}, {Every: EveryQuarter}, {Every: "7h"},
		} {
			spec.Zone = zone(t, name)
			now := time.Date(2027, 12, 31, 23, 59, 59, 0, time.UTC)
			begin, end := Window(spec, now)
			for now.Year() < 2029 {
				if now.Before(begin) || !now.Before(end) {
					t.Fatalf("%s of %s: %s is not from %s to %s", name, spec.Every, now, begin, end)
				}
				if first, last := Window(spec, end.Add(-1)); !first.Equal(begin) || !last.Equal(end) {
					t.Fatalf("%s of %s: the window from %s to %s is another one at its end, from %s to %s", name, spec.Every, begin, end, first, last)
				}
				next, after := Window(spec, end)
				if !next.Equal(end) {
					t.Fatalf("%s of %s: after %s a window begins at %s", name, spec.Every, end, next)
				}
				now, begin, end = end, next, after
			}
		}
	}
}

func TestABudgetIsReadAsItIsWritten(t *testing.T) {
	for _, c := range []struct {
		text BudgetText
		want BudgetSpec
	}{
		{BudgetText{Limit: "5.00"}, BudgetSpec{Limit: 5 * One, Alert: []int{50, 80, 100}}},
		{BudgetText{Limit: "0.00", Every: "month", Zone: "Europe/Berlin", Begins: "31", Models: []string{"gpt-*", "delta"}, Exhausted: "downgrade:small", Alert: []int{}},
			BudgetSpec{Every: EveryMonth, Zone: zone(t, "Europe/Berlin"), Begins: "31", Models: []string{"delta", "gpt-*"}, Downgrade: "small"}},
		{BudgetText{Limit: "20.00", Every: "36h", Begins: "2026-11-01T00:00:00Z", Alert: []int{90}}, BudgetSpec{Limit: 20 * One, Every: "36h", Begins: "2026-11-01T00:00:00Z", Alert: []int{90}}},
	} {
		got, err := ParseBudget(c.text)
		if err != nil {
			t.Fatal(err)
		}
		same := cmp.Comparer(func(a, b *time.Location) bool { return a.String() == b.String() })
		if diff := cmp.Diff(c.want, got, same); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.text, diff)
		}
		again := got.Text()
		if c.text.Alert == nil {
			c.text.Alert = got.Alert
		}
		slices.Sort(c.text.Models) // the order of which means nothing
		if diff := cmp.Diff(c.text, again); diff != "" {
			t.Errorf("written again (-want +got):\n%s", diff)
		}
	}
	for text, want := range map[Period]Period{"60s": "1m", "90s": "1m30s", "10s": "10s", "2160m": "36h", "100h": "100h"} {
		if s, err := ParseBudget(BudgetText{Limit: "1", Every: string(text)}); err != nil || s.Every != want {
			t.Errorf("%s is %s, %v, want %s", text, s.Every, err, want)
		}
	}
}

func TestABudgetThatCannotBeNamesTheField(t *testing.T) {
	for _, c := range []struct {
		name, field string
		edit        func(*BudgetText)
	}{
		{"no limit", "limit", func(t *BudgetText) { t.Limit = "" }},
		{"a negative limit", "limit", func(t *BudgetText) { t.Limit = "-0.01" }},
		{"a limit that is no decimal", "limit", func(t *BudgetText) { t.Limit = "5 EUR" }},
		{"a limit that stands for none", "limit", func(t *BudgetText) { t.Limit = Unlimited.String() }},
		{"an unknown period", "every", func(t *BudgetText) { t.Every = "fortnight" }},
		{"a window of zero", "every", func(t *BudgetText) { t.Every = "0s" }},
		{"a window below a second", "every", func(t *BudgetText) { t.Every = "999ms" }},
		{"a negative window", "every", func(t *BudgetText) { t.Every = "-4s" }},
		{"a zone that does not exist", "zone", func(t *BudgetText) { t.Zone = "Europe/Atlantis" }},
		{"the zone of the machine", "zone", func(t *BudgetText) { t.Zone = "Local" }},
		{"a file as a zone", "zone", func(t *BudgetText) { t.Zone = "../passwd" }},
		{"day 0", "begins", func(t *BudgetText) { t.Every, t.Begins = "month", "0" }},
		{"day 32", "begins", func(t *BudgetText) { t.Every, t.Begins = "month", "32" }},
		{"a day with a zero before it", "begins", func(t *BudgetText) { t.Every, t.Begins = "quarter", "05" }},
		{"a weekday of a year", "begins", func(t *BudgetText) { t.Every, t.Begins = "year", "sunday" }},
		{"no weekday", "begins", func(t *BudgetText) { t.Every, t.Begins = "week", "Sunday" }},
		{"no time of day", "begins", func(t *BudgetText) { t.Every, t.Begins = "day", "24:00" }},
		{"a short time of day", "begins", func(t *BudgetText) { t.Every, t.Begins = "day", "6:00" }},
		{"a beginning of an hour", "begins", func(t *BudgetText) { t.Every, t.Begins = "hour", "06:00" }},
		{"a beginning of a budget for ever", "begins", func(t *BudgetText) { t.Begins = "15" }},
		{"a duration from no time", "begins", func(t *BudgetText) { t.Every, t.Begins = "36h", "15" }},
		{"a star within a model", "models", func(t *BudgetText) { t.Models = []string{"gpt*o"} }},
		{"an empty model", "models", func(t *BudgetText) { t.Models = []string{""} }},
		{"a model twice", "models", func(t *BudgetText) { t.Models = []string{"a", "a"} }},
		{"a model with a space", "models", func(t *BudgetText) { t.Models = []string{"a b"} }},
		{"101 models", "models", func(t *BudgetText) { t.Models = slices.Repeat([]string{"a"}, 101) }},
		{"another end", "exhausted", func(t *BudgetText) { t.Exhausted = "stop" }},
		{"a downgrade to nothing", "exhausted", func(t *BudgetText) { t.Exhausted = "downgrade:" }},
		{"a downgrade to a pattern", "exhausted", func(t *BudgetText) { t.Exhausted = "downgrade:gpt-*" }},
		{"an alert at 0", "alert", func(t *BudgetText) { t.Alert = []int{0} }},
		{"an alert above 100", "alert", func(t *BudgetText) { t.Alert = []int{101} }},
		{"alerts in no order", "alert", func(t *BudgetText) { t.Alert = []int{80, 80} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := BudgetText{Limit: "1.00"}
			c.edit(&text)
			_, err := ParseBudget(text)
			var f *fault.Error
			if !errors.As(err, &f) || f.Code != fault.InvalidRequest || f.Param != c.field || f.Message == "" {
				t.Errorf("got %+v, want 400 of %s", err, c.field)
			}
		})
	}
	fixed := BudgetSpec{Every: EveryDay, Zone: time.FixedZone("X", 3600)}
	if err := fixed.Validate(); err == nil {
		t.Error("a zone that has no name is accepted: it could not be read again")
	}
}

func TestABudgetCountsItsModels(t *testing.T) {
	s := BudgetSpec{Models: []string{"gpt-*", "delta"}}
	for model, want := range map[string]bool{"gpt-5": true, "gpt-": true, "gpt": false, "delta": true, "delta-2": false, "": false} {
		if got := s.Counts(model); got != want {
			t.Errorf("%q: %t, want %t", model, got, want)
		}
	}
	if all := (&BudgetSpec{}); !all.Counts("any") {
		t.Error("a budget without models counts not all")
	}
}

func TestASubjectIsReadAsItIsPrinted(t *testing.T) {
	for text, want := range map[string]Subject{
		"account:acme":                    AccountSubject("acme"),
		"group:acme/research":             {Kind: OnGroup, Account: "acme", Name: "research"},
		"key:key_1":                       KeySubject("key_1"),
		"tag:acme/project=blue":           {Kind: OnTag, Account: "acme", Name: "project", Value: "blue"},
		"tag:acme/project=a/b=c d":        {Kind: OnTag, Account: "acme", Name: "project", Value: "a/b=c d"},
		"run:nightly":                     {Kind: OnRun, Name: "nightly"},
		"channel:main":                    {Kind: OnChannel, Name: "main"},
		"model:meta/llama-3:free":         {Kind: OnModel, Name: "meta/llama-3:free"},
		"key:" + strings.Repeat("k", 256): KeySubject(strings.Repeat("k", 256)),
	} {
		got, err := ParseSubject(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%q: %+v, %v, printed %q", text, got, err, got.String())
		}
	}
	for _, text := range []string{
		"", "acme", "account:", "account:a/b", "account:a b", "group:acme", "group:acme/", "group:/g", "group:a/b/c", "key:", "key:a\n", "tag:acme/project", "tag:acme/project=", "tag:acme/=blue", "tag:project=blue",
		"run:", "channel:", "model:", "team:a", "KEY:a", "key:" + strings.Repeat("k", 257), "key:\xff",
	} {
		if got, err := ParseSubject(text); !fault.Is(err, fault.InvalidRequest) || fault.From(err).Param != "subject" {
			t.Errorf("%q: %+v, %v, want 400", text, got, err)
		}
	}
	for _, s := range []Subject{{}, {Kind: OnKey, Name: "k", Account: "acme"}, {Kind: OnKey, Name: "k", Key: "k"}, {Kind: OnGroup, Account: "acme", Name: "g", Value: "v"}} {
		if err := s.Validate(); err == nil {
			t.Errorf("%+v is accepted", s)
		}
	}
	run := Subject{Kind: OnRun, Name: "nightly", Key: "key_1"}
	if err := run.Validate(); err != nil || run.String() != "run:nightly" {
		t.Errorf("a run of a key: %v, printed %q", err, run)
	}
}
