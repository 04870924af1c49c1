package sim

import "sync"

// mostTasks is how many tasks are known at once; the oldest is then forgotten.
const mostTasks = 10_000

// tasks are those that were taken. They are safe for concurrent use.
type tasks struct {
	mu    sync.Mutex
	known map[string]*task
	order []string // the ids of known, oldest first
	count int
}

// add keeps a task under the id that is made for it.
func (s *tasks) add(t *task, id func(count int) string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	t.id = id(s.count)
	if s.known == nil {
		s.known = make(map[string]*task)
	}
	if s.known[t.id] == nil {
		s.order = append(s.order, t.id)
	}
	s.known[t.id] = t
	if len(s.order) > mostTasks {
		delete(s.known, s.order[0])
		s.order = s.order[1:]
	}
}

// get is a task, which does not change any more; nil if there is none.
func (s *tasks) get(id string) *task {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[id]
}

func (s *tasks) taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count
}
