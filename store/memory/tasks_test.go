package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/tollhouse-ai/gateway/idempotency"
	"github.com/tollhouse-ai/gateway/store/memory"
	"github.com/tollhouse-ai/gateway/store/storetest"
)

func TestTasksInMemory(t *testing.T) {
	storetest.RunTasks(t, func(_ testing.TB, now func() time.Time) storetest.TaskStore {
		answers := &memory.Answers{Now: now}
		tasks := memory.NewTasks(now, answers)
		return storetest.TaskStore{Store: tasks, Answers: answers, Outbox: tasks, ClaimKey: func(k idempotency.Key, content idempotency.Content, request string) error {
			return answers.Claim(context.Background(), k, content, request)
		}}
	})
}
