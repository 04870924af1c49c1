//go:build unix

package videocrash

import (
	"encoding/json"
	"fmt"
	"sync"

	"github.com/tollhouse-ai/gateway/internal/childproc"
)

// process is a child that runs.
type process struct {
	child  *childproc.Process
	orders *json.Encoder
	once   sync.Once
	gone   chan struct{} // closed when the system has forgotten it
	err    error         // how it ended otherwise than it should, once it is gone
}

// start starts this binary as a child, and has hear told of what it says until
// it has ended.
func start(t task, hear func(*process, event)) (*process, error) {
	child, err := childproc.Start(variable, t)
	if err != nil {
		return nil, err
	}
	p := &process{child: child, orders: json.NewEncoder(child.Input), gone: make(chan struct{})}
	go p.listen(hear)
	return p, nil
}

// listen hears the child until it ends.
func (p *process) listen(hear func(*process, event)) {
	defer close(p.gone)
	for line := range p.child.Said() {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			e = event{Kind: broken, Error: fmt.Sprintf("a child said %q", line)}
		}
		hear(p, e)
	}
	_, p.err = p.child.Wait()
}

// tell gives a command. One that is dying may not get it.
func (p *process) tell(c command) { _ = p.orders.Encode(c) }

// kill ends the child now.
func (p *process) kill() { p.once.Do(p.child.Kill) }
