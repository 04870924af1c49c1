package faultlab

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	gateway "github.com/tollhouse-ai/gateway"
	"github.com/tollhouse-ai/gateway/auth"
	"github.com/tollhouse-ai/gateway/billing"
	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/secret"
	"github.com/tollhouse-ai/gateway/server"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/upstream"
	"github.com/tollhouse-ai/gateway/upstream/anthropic"
	"github.com/tollhouse-ai/gateway/upstream/ark"
	"github.com/tollhouse-ai/gateway/upstream/dashscope"
	"github.com/tollhouse-ai/gateway/upstream/openai"
	"github.com/tollhouse-ai/gateway/upstream/router"
	"github.com/tollhouse-ai/gateway/upstream/voyage"
)

// hostileOptions say what is played. The zero value of a field is a default.
type hostileOptions struct {
	Seed     uint64
	Requests int    // of the hostile tenants; 0 means 400
	Class    string // the only class that is played; empty means all
	Only     int    // the number of the only hostile request that is played, counted from 1; 0 means all
}

// roundCredit is what each hostile account has at the start of a round, and allowance
// what one of its keys may spend in all.
const (
	roundCredit = 5 * billing.One
	allowance   = billing.One
	// perRound is how many requests a round has.
	perRound = 40
	// pause is between two requests of the hostile tenants, and goodPause between two
	// of the third tenant.
	pause, goodPause = 500 * time.Millisecond, 1_250 * time.Millisecond
	// hostileHeld is held where a caller sets no bound, and what a stream is
	// extended by; hostileOutput is what a model may say.
	hostileHeld, hostileOutput = 4_096, 65_536
)

// outcome is what a tenant sees of a request.
type outcome struct {
	status int
	code   string
	whole  bool
	hold   billing.Money
	charge billing.Money
	key    string // of the operator's, by which a vendor was asked last

	response, item string // ids in an answer that may be stored
}

// hostileLab is one gateway with its vendors.
type hostileLab struct {
	options  hostileOptions
	ledger   *checkedLedger
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
	outcomes map[int]outcome     // of the third tenant, by number
	report   *hostileReport
}

// playHostile plays twice: with the hostile tenants, and without them to see what
// the third tenant is to see. It must be called in the bubble of a
// testing/synctest. The error says that the lab itself could not work.
func playHostile(o hostileOptions) (*hostileReport, error) {
	o.Requests = cmp.Or(o.Requests, 400)
	alone, err := playOnce(o, false)
	if err != nil {
		return nil, err
	}
	beside, err := playOnce(o, true)
	if err != nil {
		return nil, err
	}
	rep := beside.report
	rep.Good = len(alone.outcomes)
	keys := map[string]bool{}
	for number := range len(alone.outcomes) {
		was, is := alone.outcomes[number], beside.outcomes[number]
		keys[was.key] = true
		if was.status >= 300 || !was.whole {
			return nil, fmt.Errorf("alone the third tenant's request %d ends with %+v", number, was)
		}
		if was != is {
			rep.problem("third tenant", "request %d of the third tenant: alone %+v, beside the others %+v\n%s", number, was, is, goodRequest(number))
		}
	}
	if ring := len(ringKeys) + 1; o.Requests >= perRound && len(keys) != ring { // one of them is none
		return nil, fmt.Errorf("the third tenant's requests have %d keys, want %d", len(keys), ring)
	}
	return rep, nil
}

// playOnce plays requests, with the hostile tenants or without.
func playOnce(o hostileOptions, hostiles bool) (*hostileLab, error) {
	l, err := openHostile(o)
	if err != nil {
		return nil, err
	}
	ctx, end := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { l.sendGood(ctx, o.Requests) })
	if hostiles {
		l.rounds(o)
	}
	all.Wait()
	end()
	l.awaitSettled("at the end")
	for id := range l.vendors.bills { // all has ended
		if l.requests[id] == nil {
			l.report.problem("ledger", "a vendor saw the request %q, and its end was never told", id)
		}
	}
	const most = 33 << 20 // 32 MiB of what is stored, and what was sent
	if l.vendors.largest > most {
		l.report.problem("memory", "a vendor was sent %d bytes", l.vendors.largest)
	}
	l.ledger.verify(func(format string, args ...any) { l.report.problem("ledger", format, args...) })
	return l, l.close()
}

// sendGood sends the good requests, each at its time.
func (l *hostileLab) sendGood(ctx context.Context, hostiles int) {
	span := time.Duration(hostiles) * pause
	var all sync.WaitGroup
	for number := range int(span/goodPause) + 9 {
		all.Go(func() {
			if wait(ctx, time.Duration(number)*goodPause+250*time.Microsecond) {
				seen := l.send(goodRequest(number), 0)
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
func (l *hostileLab) rounds(o hostileOptions) {
	l.setBudgets()
	for first := 0; first < o.Requests; first += perRound {
		l.credit(first / perRound)
		var all sync.WaitGroup
		for i := range min(perRound, o.Requests-first) {
			number := first + i + 1
			if o.Only != 0 && o.Only != number {
				continue
			}
			r := hostile(o.Seed, number, o.Class)
			for copy := range r.copies {
				all.Go(func() {
					time.Sleep(time.Duration(i) * pause)
					l.send(r, copy)
				})
			}
		}
		all.Wait()
		l.awaitSettled(fmt.Sprintf("after round %d", first/perRound))
		l.audit(first / perRound)
	}
}

// setBudgets gives the third key of each hostile account its budget.
func (l *hostileLab) setBudgets() {
	for tenant := range thirdTenant {
		budget := allowance
		if err := l.ledger.SetBudget(context.Background(), tenantAccount(tenant), keyOf(tenant, 2), &budget); err != nil {
			l.report.problem("ledger", "%v", err)
		}
	}
}

// credit fills each hostile account up.
func (l *hostileLab) credit(round int) {
	ctx := context.Background()
	l.vendors.mu.Lock()
	l.vendors.huge = false
	l.vendors.mu.Unlock()
	for tenant := range thirdTenant {
		name := tenantAccount(tenant)
		b, err := l.ledger.Balance(ctx, name)
		if err == nil && b.Posted < roundCredit {
			err = l.ledger.Credit(ctx, name, roundCredit-b.Posted, fmt.Sprintf("round-%d-%s", round, name))
		}
		if err != nil {
			l.report.problem("ledger", "%v", err)
		}
	}
}

// awaitSettled waits until nothing is held any more.
func (l *hostileLab) awaitSettled(when string) {
	const most = 72 * time.Hour
	for start := time.Now(); ; time.Sleep(time.Second + time.Since(start)/8) {
		held := billing.Money(0)
		for tenant := range tenants {
			b, err := l.ledger.Balance(context.Background(), tenantAccount(tenant))
			if err != nil {
				l.report.problem("ledger", "%v", err)
			}
			held += b.Held
		}
		if held == 0 {
			return
		}
		if time.Since(start) > most {
			l.report.problem("ledger", "%s %s is held %s later", when, held, most)
			return
		}
	}
}

func keyOf(tenant, key int) string { return fmt.Sprintf("key-%d-%d", tenant, key) }

// Authenticate knows the tenants by their tokens.
func (l *hostileLab) Authenticate(_ context.Context, token string) (*auth.Principal, error) {
	var tenant, key int
	if _, err := fmt.Sscanf(token, "sk-lab-%d-%d", &tenant, &key); err != nil || tenant >= tenants {
		return nil, fault.New(fault.Unauthorized, "no such key")
	}
	return &auth.Principal{Account: tenantAccount(tenant), Key: keyOf(tenant, key), Name: "a tenant of the lab"}, nil
}

// openHostile starts the vendors, the gateway and its HTTP server.
func openHostile(o hostileOptions) (*hostileLab, error) {
	l := &hostileLab{
		options: o, ledger: newCheckedLedger(memory.NewLedger(memory.LedgerOptions{Receipts: 1_000_000})), vendors: newVendors(), front: newPipes(), back: newPipes(),
		requests: map[string]*request{}, seen: map[string]string{}, outcomes: map[int]outcome{},
		report: &hostileReport{Seed: o.Seed, Statuses: map[int]int{}, Found: map[string]int{}},
	}
	for tenant, sum := range []billing.Money{0, 0, 1_000 * billing.One} {
		if err := l.ledger.CreateAccount(context.Background(), tenantAccount(tenant), sum); err != nil {
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
	list, err := newPriceList(hostilePrices)
	if err != nil {
		return nil, err
	}
	l.gateway, err = gateway.New(gateway.Options{
		Upstream: routing, Prices: list, RequirePrice: true, Models: models(), Authenticator: l, Meter: l.ledger, MP3: noEncoder{},
		Responses: gateway.ResponsesOptions{Mode: gateway.ResponsesOn},
		Secrets:   []secret.String{secret.New("by which a session has its key in every run")},
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
func (l *hostileLab) serve(on *pipes, h http.Handler) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	l.servers = append(l.servers, s)
	l.running.Go(func() { _ = s.Serve(on) })
}

// ringKeys are the operator's keys of a channel that has several.
var ringKeys = []secret.String{secret.New("sk-ring-1"), secret.New("sk-ring-2"), secret.New("sk-ring-3")}

// models are what the gateway has to know of the lab's own models.
func models() []gateway.Model {
	chat := func(id string, kind gateway.Kind) gateway.Model {
		return gateway.Model{ID: id, Kind: kind, MaxOutput: hostileOutput, HoldTokens: hostileHeld}
	}
	return []gateway.Model{
		chat(plainChat, gateway.KindChat), chat(renamedChat, gateway.KindChat), chat(droppedChat, gateway.KindChat), chat(dearChat, gateway.KindChat), chat(cheapChat, gateway.KindChat), chat(ringChat, gateway.KindChat),
		chat(nativeChat, gateway.KindMessages), {ID: hidingChat, Kind: gateway.KindChat, MaxOutput: hostileOutput, HoldTokens: hostileHeld, Reasoning: gateway.ReasoningHidden},
		{ID: otherVector, Kind: gateway.KindEmbeddings}, {ID: otherSpeech, Kind: gateway.KindSpeech}, {ID: pieceImage, Kind: gateway.KindImage},
	}
}

// channels are one for each wire, and one for each way to edit a request.
func (l *hostileLab) channels() (all []router.Channel, err error) {
	for _, c := range []struct {
		router.Channel
		driver func(upstream.DriverOptions) (upstream.Driver, error)
		models []string
		keys   []secret.String
	}{
		{router.Channel{Name: "plain"}, openai.New, []string{plainChat, dearChat, cheapChat, hidingChat, tokenImage, pieceImage, plainVector, otherSpeech}, nil},
		{router.Channel{Name: "ring"}, openai.New, []string{ringChat}, ringKeys},
		{router.Channel{Name: "renamed", Rename: map[string]string{"max_tokens": "max_completion_tokens"}}, openai.New, []string{renamedChat}, nil},
		{router.Channel{Name: "dropped", Drop: []string{"max_tokens"}}, openai.New, []string{droppedChat}, nil},
		{router.Channel{Name: "native"}, anthropic.New, []string{nativeChat}, nil},
		{router.Channel{Name: "alpha"}, dashscope.New, []string{alphaImage, alphaSpeech, betaVideo}, nil},
		{router.Channel{Name: "videos"}, ark.New, []string{gammaVideo}, nil},
		{router.Channel{Name: "vectors"}, voyage.New, []string{otherVector}, nil},
	} {
		d, err := c.driver(upstream.DriverOptions{BaseURL: "http://vendor.example/" + c.Name, Dial: l.back.dial, Keys: c.keys})
		if err != nil {
			return nil, err
		}
		l.drivers = append(l.drivers, d)
		c.Upstream, c.Models = d, map[string]string{}
		for _, m := range c.models {
			c.Models[m] = m
		}
		all = append(all, c.Channel)
	}
	return all, nil
}

// close ends everything.
func (l *hostileLab) close() error {
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
func (l *hostileLab) send(r *request, copy int) outcome {
	body, item := r.body, ""
	if r.after != nil {
		before := l.send(r.after, copy+1) // a request with one before it has no copies
		item = before.item
		body = bytes.ReplaceAll(bytes.ReplaceAll(body, []byte(storedItem), []byte(item)), []byte(storedResponse), []byte(before.response))
	}
	ctx, end := context.WithCancel(context.Background())
	defer end()
	if r.leaves > 0 {
		t := time.AfterFunc(r.leaves, end)
		defer t.Stop()
	}
	client := fmt.Sprintf("%s-%d-%d", tenantAccount(r.tenant), r.number, copy)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://gateway.example"+r.path, bytes.NewReader(body))
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
		seen = readAnswer(reply)
	}
	seen.item = cmp.Or(item, seen.item) // the first of all is a long one
	return l.recordOutcome(r, client, seen)
}

// readAnswer reads an answer to its end.
func readAnswer(reply *http.Response) outcome {
	data, err := io.ReadAll(reply.Body)
	_ = reply.Body.Close()
	seen := outcome{status: reply.StatusCode, whole: err == nil}
	var body struct {
		Object string `json:"object"`
		ID     string `json:"id"`
		Output []struct {
			ID string `json:"id"`
		} `json:"output"`
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
	} else if json.Unmarshal(data, &body) == nil && body.Object == "response" && len(body.Output) > 0 {
		seen.response, seen.item = body.ID, body.Output[0].ID
	}
	return seen
}

// recordOutcome waits for the end of a request in the gateway, and files it.
func (l *hostileLab) recordOutcome(r *request, client string, seen outcome) outcome {
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
	bills := l.vendors.of(id)
	for _, b := range bills {
		seen.key = b.key
	}
	if id != "" && r.tenant == thirdTenant && r.path != "/v1/videos/generations" {
		if receipt, err := l.ledger.Receipt(context.Background(), tenantAccount(r.tenant), id); err == nil {
			seen.hold, seen.charge = receipt.Hold, receipt.Charge
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if id != "" {
		l.requests[id] = r
	}
	if r.barred && (seen.status != http.StatusBadRequest && seen.status != http.StatusPaymentRequired || len(bills) > 0) {
		l.report.problem(r.class, "request %d: %+v after %d calls of vendors\n%s", r.number, seen, len(bills), r)
	}
	if r.tenant != thirdTenant {
		l.report.Requests++
		l.report.Statuses[seen.status]++
		if seen.status >= 400 && seen.status < 500 {
			l.report.Refused++
		}
	}
	return seen
}
