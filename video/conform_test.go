package video_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/storetest"
	"github.com/tollhouse-ai/gateway/video"
)

func TestTheStoreInMemory(t *testing.T) {
	storetest.Tasks(t, func(_ testing.TB, now func() time.Time) storetest.TaskStore {
		var mu sync.Mutex
		var ids []string
		m := &video.Memory{Now: now, Answers: &memory.Answers{Now: now}, Outbox: func(_ context.Context, n video.Notice) error {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, n.ID)
			return nil
		}}
		return storetest.TaskStore{Store: m, Answers: m.Answers, Notices: func() []string {
			mu.Lock()
			defer mu.Unlock()
			return ids
		}}
	})
}
