// Package enemy plays an hour in which two tenants try to make vendors' costs
// exceed what they pay, beside a third that does nothing wrong.
//
// # What is played
//
// A request is drawn from a seed and a number. Most come of a grammar that is
// made of the OpenAPI document: every member of every endpoint, with its types,
// values and bounds, and hostile changes on top of it (absent, null, wrong type,
// out of range, twice, in other letters, escaped, deep, huge, unknown). The others
// come of scripts, one for each class of attack that was once found; a script's
// name is the request's class, and Options.Class plays that class alone.
//
// The gateway runs behind HTTP on connections without a network, with the real
// driver of each vendor. The vendors behind them read requests as a lenient Go
// program does (encoding/json: letter case does not matter, the last of several
// members counts), do what they are asked, and record what they would bill
// at the gateway's own prices. All of it runs in the bubble of a testing/synctest.
//
// # What must hold
//
// After every round of requests, for each hostile account: what the vendors bill
// is at most what the account paid and the declared tolerance, and at most the
// credit of the round and the tolerance; every request by itself costs the vendors
// at most its charge and its tolerance. At the end: the third tenant saw what it
// sees in a run of the same seed without the others, request for request; the
// ledger verifies; nothing is held.
//
// # The tolerance
//
// [Tolerance] lists what the operator bears by rule, counted to the token by the
// vendor that did it: what a vendor made above the bound that it was sent, what
// media by URL counted above their declared bound, what one whole answer in a round
// had above its hold whose bound a channel drops, what a vendor billed though it
// answered with an error, output by tokens that was made and never received
// because the client left, the other parts of a request of which one part failed,
// and for a stream that ended with its balance one step of hold_tokens.
package enemy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/speech"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// Options say what is played. The zero value of a field is a default.
type Options struct {
	Seed     uint64
	Requests int    // of the hostile tenants; 0 means 400
	Class    string // the only class that is played; empty means all
	Only     int    // the number of the only hostile request that is played, counted from 1; 0 means all
	discount int64  // by which the gateway charges less than the vendors, of a hundred
}

// credit is what each hostile account has at the start of a round, and allowance
// what one of its keys may spend in all.
const (
	credit    = 5 * billing.One
	allowance = billing.One
	// perRound is how many requests a round has.
	perRound = 40
	// pause is between two requests of the hostile tenants, and steady between two
	// of the victim.
	pause, steady = 500 * time.Millisecond, 1_250 * time.Millisecond
	// heldTokens is held where a caller sets no bound, and what a stream is
	// extended by; mostOutput is what a model may say.
	heldTokens, mostOutput = 4_096, 65_536
)

// Report is what became of an hour.
type Report struct {
	Seed     uint64
	Requests int // that were sent, copies included
	Reached  int // that a vendor saw
	Refused  int // with a 4xx
	Charged  billing.Money
	Billed   billing.Money // by the vendors, for the hostile tenants
	Borne    Tolerance     // what was borne by rule
	Statuses map[int]int
	Victim   int            // requests of the victim
	Found    map[string]int // problems by the class of the request
	Problems []string
}

// String are the figures, and of each class the first problems with the command
// that plays them again.
func (rep *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %d requests, %d reached a vendor, %d refused, %v; billed %s, charged %s, borne by rule %+v; %d requests of the victim",
		rep.Seed, rep.Requests, rep.Reached, rep.Refused, rep.Statuses, rep.Billed, rep.Charged, rep.Borne, rep.Victim)
	shown := map[string]bool{}
	for _, p := range rep.Problems {
		if class, _, _ := strings.Cut(p, ":"); !shown[class] {
			shown[class] = true
			fmt.Fprintf(&b, "\n%s", p)
		}
	}
	if len(rep.Problems) > 0 {
		fmt.Fprintf(&b, "\n%d problems %v of the seed %d", len(rep.Problems), rep.Found, rep.Seed)
	}
	return b.String()
}

func (rep *Report) blame(class, format string, args ...any) {
	rep.Found[class]++
	rep.Problems = append(rep.Problems, class+": "+fmt.Sprintf(format, args...))
}

// outcome is what a tenant sees of a request.
type outcome struct {
	status int
	code   string
	whole  bool
	charge billing.Money
}

// lab is one gateway with its vendors.
type lab struct {
	options  Options
	g        *grammar
	ledger   memory.Ledger
	gateway  *gateway.Gateway
	vendors  *vendors
	front    *pipes
	back     *pipes
	servers  []*http.Server
	drivers  []io.Closer
	stop     context.CancelFunc
	running  sync.WaitGroup
	clients  *http.Transport
	mu       sync.Mutex
	requests map[string]*request // by the gateway's request id
	seen     map[string]string   // X-Client-Request-Id to the gateway's id
	outcomes map[int]outcome     // of the victim, by number
	report   *Report
}

// Play plays the hour twice: with the hostile tenants, and without them to see
// what the victim is to see. It must be called in the bubble of a
// testing/synctest. The error says that the lab itself could not work.
func Play(o Options) (*Report, error) {
	if o.Requests == 0 {
		o.Requests = 400
	}
	alone, err := play(o, false)
	if err != nil {
		return nil, err
	}
	beside, err := play(o, true)
	if err != nil {
		return nil, err
	}
	rep := beside.report
	rep.Victim = len(alone.outcomes)
	for number := range len(alone.outcomes) {
		was, is := alone.outcomes[number], beside.outcomes[number]
		if was.status >= 300 || !was.whole {
			return nil, fmt.Errorf("alone the victim's request %d ends with %+v", number, was)
		}
		if was != is {
			rep.blame("victim", "request %d of the victim: alone %+v, beside the others %+v\n%s", number, was, is, good(number))
		}
	}
	return rep, nil
}

// play plays an hour, with the hostile tenants or without.
func play(o Options, hostiles bool) (*lab, error) {
	l, err := open(o)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { l.victim(ctx, o.Requests) })
	if hostiles {
		l.rounds(o)
	}
	all.Wait()
	end()
	l.rest("at the end")
	for id := range l.vendors.bills { // all has ended
		if l.requests[id] == nil {
			l.report.blame("ledger", "a vendor saw the request %q, and its end was never told", id)
		}
	}
	if err := l.ledger.Verify(context.Background()); err != nil {
		l.report.blame("ledger", "%v", err)
	}
	return l, l.close()
}

// victim sends the good requests, each at its time.
func (l *lab) victim(ctx context.Context, hostiles int) {
	span := time.Duration(hostiles) * pause
	var all sync.WaitGroup
	for number := range int(span/steady) + 9 {
		all.Go(func() {
			if wait(ctx, time.Duration(number)*steady+250*time.Microsecond) {
				seen := l.send(good(number), 0)
				l.mu.Lock()
				l.outcomes[number] = seen
				l.mu.Unlock()
			}
		})
	}
	all.Wait()
}

// rounds sends the hostile requests. Each round begins with the whole credit and
// ends when nothing is under way.
func (l *lab) rounds(o Options) {
	l.allow()
	for first := 0; first < o.Requests; first += perRound {
		l.credit(first / perRound)
		var all sync.WaitGroup
		for i := range min(perRound, o.Requests-first) {
			number := first + i + 1
			if o.Only != 0 && o.Only != number {
				continue
			}
			r := hostile(l.g, o.Seed, number, o.Class)
			for copy := range r.copies {
				all.Go(func() {
					time.Sleep(time.Duration(i) * pause)
					l.send(r, copy)
				})
			}
		}
		all.Wait()
		l.rest(fmt.Sprintf("after round %d", first/perRound))
		l.audit(first / perRound)
	}
}

// allow gives the third key of each hostile account its budget.
func (l *lab) allow() {
	for tenant := range victim {
		budget := allowance
		if err := l.ledger.SetBudget(context.Background(), accountOf(tenant), keyOf(tenant, 2), &budget); err != nil {
			l.report.blame("ledger", "%v", err)
		}
	}
}

// credit fills each hostile account up.
func (l *lab) credit(round int) {
	ctx := context.Background()
	l.vendors.mu.Lock()
	l.vendors.huge = false
	l.vendors.mu.Unlock()
	for tenant := range victim {
		name := accountOf(tenant)
		b, err := l.ledger.Balance(ctx, name)
		if err == nil && b.Posted < credit {
			err = l.ledger.Credit(ctx, name, credit-b.Posted, fmt.Sprintf("round-%d-%s", round, name))
		}
		if err != nil {
			l.report.blame("ledger", "%v", err)
		}
	}
}

// rest waits until nothing is held any more.
func (l *lab) rest(when string) {
	const most = 72 * time.Hour
	for start := time.Now(); ; time.Sleep(time.Second + time.Since(start)/8) {
		held := billing.Money(0)
		for tenant := range tenants {
			b, err := l.ledger.Balance(context.Background(), accountOf(tenant))
			if err != nil {
				l.report.blame("ledger", "%v", err)
			}
			held += b.Held
		}
		if held == 0 {
			return
		}
		if time.Since(start) > most {
			l.report.blame("ledger", "%s %s is held %s later", when, held, most)
			return
		}
	}
}

func keyOf(tenant, key int) string { return fmt.Sprintf("key-%d-%d", tenant, key) }

// Authenticate knows the tenants by their tokens.
func (l *lab) Authenticate(_ context.Context, token string) (*auth.Principal, error) {
	var tenant, key int
	if _, err := fmt.Sscanf(token, "sk-lab-%d-%d", &tenant, &key); err != nil || tenant >= tenants {
		return nil, fault.New(fault.Unauthorized, "no such key")
	}
	return &auth.Principal{Account: accountOf(tenant), Key: keyOf(tenant, key), Name: "a tenant of the lab"}, nil
}

// noEncoder makes no MP3: a child process has no part in virtual time.
type noEncoder struct{ speech.Encoder }

// Ready says that no MP3 can be made.
func (noEncoder) Ready() error { return errors.New("the lab has no encoder") }

// open starts the vendors, the gateway and its HTTP server.
func open(o Options) (*lab, error) {
	l := &lab{
		options: o, ledger: memory.NewLedger(memory.LedgerOptions{Receipts: 1_000_000}), vendors: newVendors(), front: newPipes(), back: newPipes(),
		requests: map[string]*request{}, seen: map[string]string{}, outcomes: map[int]outcome{},
		report: &Report{Seed: o.Seed, Statuses: map[int]int{}, Found: map[string]int{}},
	}
	var err error
	if l.g, err = newGrammar(); err != nil {
		return nil, err
	}
	for tenant, sum := range []billing.Money{0, 0, 1_000 * billing.One} {
		if err := l.ledger.CreateAccount(context.Background(), accountOf(tenant), sum); err != nil {
			return nil, err
		}
	}
	channels, err := l.channels()
	if err != nil {
		return nil, err
	}
	routing, err := router.New(channels, router.Options{})
	if err != nil {
		return nil, err
	}
	list, err := priceList(o.discount)
	if err != nil {
		return nil, err
	}
	l.gateway, err = gateway.New(gateway.Options{
		Upstream: routing, Prices: list, RequirePrice: true, Models: models(), Authenticator: l, Meter: l.ledger, MP3: noEncoder{},
		Observe: []gateway.Observer{{
			Attempt: func(ctx context.Context, a gateway.AttemptEvent) context.Context {
				return upstream.WithWire(ctx, http.Header{correlation: {a.RequestID}})
			},
			End: func(_ context.Context, f *gateway.RequestEvent) {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.seen[f.ClientID] = f.ID
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.running.Go(func() { _ = l.gateway.Run(ctx) })
	l.clients = &http.Transport{DialContext: l.front.dial, DisableKeepAlives: true, DisableCompression: true}
	l.serve(l.front, server.New(l.gateway, server.Options{}))
	l.serve(l.back, l.vendors)
	return l, nil
}

// serve starts an HTTP server on connections without a network.
func (l *lab) serve(on *pipes, h http.Handler) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l.servers = append(l.servers, s)
	l.running.Go(func() { _ = s.Serve(on) })
}

// models are what the gateway has to know of the lab's own models.
func models() []gateway.Model {
	chat := func(id string, kind gateway.Kind) gateway.Model {
		return gateway.Model{ID: id, Kind: kind, MaxOutput: mostOutput, HoldTokens: heldTokens}
	}
	return []gateway.Model{
		chat(plainChat, gateway.KindChat), chat(renamedChat, gateway.KindChat), chat(droppedChat, gateway.KindChat), chat(dearChat, gateway.KindChat),
		chat(nativeChat, gateway.KindMessages),
		{ID: otherVector, Kind: gateway.KindEmbeddings}, {ID: otherSpeech, Kind: gateway.KindSpeech}, {ID: pieceImage, Kind: gateway.KindImage},
	}
}

// channels are one for each wire, and one for each way to edit a request.
func (l *lab) channels() ([]router.Channel, error) {
	const base = "http://vendor.example/"
	plain, err := openai.New(upstream.DriverOptions{BaseURL: base + "openai", Dial: l.back.dial})
	if err != nil {
		return nil, err
	}
	native, err := anthropic.New(upstream.DriverOptions{BaseURL: base + "anthropic", Dial: l.back.dial})
	if err != nil {
		return nil, err
	}
	alpha, err := dashscope.New(upstream.DriverOptions{BaseURL: base + "dashscope", Dial: l.back.dial})
	if err != nil {
		return nil, err
	}
	films, err := ark.New(upstream.DriverOptions{BaseURL: base + "ark", Dial: l.back.dial})
	if err != nil {
		return nil, err
	}
	vectors, err := voyage.New(upstream.DriverOptions{BaseURL: base + "voyage", Dial: l.back.dial})
	if err != nil {
		return nil, err
	}
	l.drivers = []io.Closer{plain, native, alpha, films, vectors}
	channel := func(name string, up upstream.Upstream, models ...string) router.Channel {
		c := router.Channel{Name: name, Upstream: up, Models: map[string]string{}}
		for _, m := range models {
			c.Models[m] = m
		}
		return c
	}
	renamed, dropped := channel("renamed", plain, renamedChat), channel("dropped", plain, droppedChat)
	renamed.Rename = map[string]string{"max_tokens": "max_completion_tokens"}
	dropped.Drop = []string{"max_tokens"}
	return []router.Channel{
		channel("plain", plain, plainChat, dearChat, tokenImage, pieceImage, plainVector, otherSpeech), renamed, dropped,
		channel("native", native, nativeChat), channel("alpha", alpha, alphaImage, alphaSpeech, betaVideo),
		channel("films", films, gammaVideo), channel("vectors", vectors, otherVector),
	}, nil
}

// close ends everything.
func (l *lab) close() error {
	err := l.gateway.Close()
	l.stop()
	l.clients.CloseIdleConnections()
	for _, s := range l.servers {
		err = errors.Join(err, s.Close())
	}
	for _, d := range l.drivers {
		err = errors.Join(err, d.Close())
	}
	l.running.Wait()
	return err
}

// send sends one copy of a request, reads the answer, and leaves when it is time.
func (l *lab) send(r *request, copy int) outcome {
	ctx, end := context.WithCancel(context.Background())
	defer end()
	if r.leaves > 0 {
		t := time.AfterFunc(r.leaves, end)
		defer t.Stop()
	}
	client := fmt.Sprintf("%s-%d-%d", accountOf(r.tenant), r.number, copy)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway.example"+r.path, bytes.NewReader(r.body))
	if err != nil {
		return outcome{code: err.Error()}
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	req.Header.Set("Content-Type", r.content)
	req.Header.Set("Authorization", fmt.Sprintf("Bearer sk-lab-%d-%d", r.tenant, r.key))
	req.Header.Set("X-Client-Request-Id", client)
	var seen outcome
	reply, err := l.clients.RoundTrip(req)
	if err == nil {
		seen = hear(reply)
	}
	return l.noted(r, client, seen)
}

// hear reads an answer to its end.
func hear(reply *http.Response) outcome {
	data, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	seen := outcome{status: reply.StatusCode, whole: err == nil}
	var body struct {
		Code  string `json:"code"`
		Error struct {
			Code string `json:"code"`
			Type string `json:"type"`
		} `json:"error"`
	}
	text := string(data)
	if strings.HasPrefix(reply.Header.Get("Content-Type"), "text/event-stream") {
		seen.whole = strings.HasSuffix(text, "data: [DONE]\n\n") || strings.Contains(text, `"type":"message_stop"`) || strings.Contains(text, ".completed")
	} else if reply.StatusCode >= 300 && json.Unmarshal(data, &body) == nil {
		seen.code = body.Error.Code + body.Code + body.Error.Type
	}
	return seen
}

// noted waits for the end of a request in the gateway, and files it.
func (l *lab) noted(r *request, client string, seen outcome) outcome {
	id := ""
	for range 600 { // of a client that left, the gateway may have more to do, or never have heard
		l.mu.Lock()
		id = l.seen[client]
		l.mu.Unlock()
		if id != "" {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if id != "" && r.tenant == victim && r.path != "/v1/videos/generations" {
		if receipt, err := l.ledger.Receipt(context.Background(), accountOf(r.tenant), id); err == nil {
			seen.charge = receipt.Charge
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if id != "" {
		l.requests[id] = r
	}
	if r.tenant != victim {
		l.report.Requests++
		l.report.Statuses[seen.status]++
		if seen.status >= 400 && seen.status < 500 {
			l.report.Refused++
		}
	}
	return seen
}

// account is what a round was for one hostile account.
type account struct {
	billed  billing.Money
	borne   Tolerance
	dropped bool          // an answer of this round was above its hold, as its bound is dropped
	missing billing.Money // neither paid nor borne by rule, where the account had no more
	worst   billing.Money // of it, by one request
	example string
	class   string // of that request
}

// audit compares what the vendors would bill with what the gateway charged.
func (l *lab) audit(round int) {
	accounts := map[string]*account{accountOf(enemyOne): {}, accountOf(enemyTwo): {}}
	l.vendors.mu.Lock()
	ids := slices.Sorted(maps.Keys(l.vendors.bills))
	l.vendors.mu.Unlock()
	for _, id := range ids {
		l.mu.Lock()
		r := l.requests[id]
		l.mu.Unlock()
		if r == nil { // the victim's, which is not over yet
			continue
		}
		if r.tenant != victim {
			l.compare(id, r, accounts[accountOf(r.tenant)])
		}
		l.vendors.forget(id)
	}
	for _, name := range slices.Sorted(maps.Keys(accounts)) {
		a := accounts[name]
		l.report.Billed += a.billed
		l.report.Borne.add(a.borne)
		b, err := l.ledger.Balance(context.Background(), name)
		if err != nil {
			l.report.blame("ledger", "%v", err)
		}
		spent := credit - b.Posted
		l.report.Charged += spent
		borne := a.borne.Sum()
		if a.missing > a.borne.Disobeyed+a.borne.Media {
			l.report.blame(a.class, "round %d: %s had %s and paid %s; %s of what the vendors bill is neither paid nor borne by rule, which is %+v. The most: %s",
				round, name, credit, spent, a.missing, a.borne, a.example)
		}
		if a.billed > spent+borne || a.billed > credit+borne {
			l.report.blame("sum", "round %d: the vendors bill %s for %s, which had %s and paid %s; %+v was borne by rule", round, a.billed, name, credit, spent, a.borne)
		}
	}
}

// compare compares what vendors bill for one request with its charge. What a
// vendor made above its bound, and what media counted, is charged like all else;
// where the account had no more, it may be another request that cannot be paid,
// so that what is missing then is compared for the account.
func (l *lab) compare(id string, r *request, a *account) {
	var total billing.Money
	var tolerance Tolerance
	var what []string
	model := ""
	for _, b := range l.vendors.of(id) {
		total += b.total
		tolerance.add(b.tolerance)
		what = append(what, strings.Join(b.what, ", "))
		model = b.model
	}
	receipt, err := l.ledger.Receipt(context.Background(), accountOf(r.tenant), id)
	if err != nil && total > 0 {
		l.report.blame(r.class, "request %d: a vendor bills %s, and there is no receipt: %v\n%s", r.number, total, err, r)
	}
	l.report.Reached++
	own := tolerance // but for what is to be charged all the same
	own.Disobeyed, own.Media = 0, 0
	missing := total - receipt.Charge - own.Sum()
	switch {
	case receipt.Reason == "balance_ended":
		tolerance.Ended = min(max(missing, 0), cost(model, billing.Output, "", heldTokens))
		missing -= tolerance.Ended
	case receipt.Reason == "upstream_failed" && len(what) > 1:
		tolerance.Parts = max(missing, 0)
		missing -= tolerance.Parts
	case model == droppedChat && receipt.Reason == billing.ReasonComplete && receipt.Overrun > 0 && !a.dropped:
		a.dropped = true
		tolerance.Dropped = max(missing, 0)
		missing -= tolerance.Dropped
	}
	a.billed += total
	a.borne.add(tolerance)
	const rounding = 1
	if missing <= rounding {
		return
	}
	text := fmt.Sprintf("request %d (%s): the vendors bill %s (%s), the charge is %s (hold %s, overrun %s, %s %s, %+v), and %+v was borne by rule\n%s\nBy itself: -seed %d -only %d",
		r.number, id, total, abridged(strings.Join(what, "; ")), receipt.Charge, receipt.Hold, receipt.Overrun, receipt.Status, receipt.Reason, receipt.Usage, tolerance, r, l.options.Seed, r.number)
	if missing-receipt.Overrun > rounding {
		l.report.blame(r.class, "%s", text)
		return
	}
	a.missing += missing
	if missing > a.worst {
		a.worst, a.example, a.class = missing, text, r.class
	}
}

func abridged(text string) string {
	const most = 120
	if len(text) > most {
		return text[:most] + " …"
	}
	return text
}
