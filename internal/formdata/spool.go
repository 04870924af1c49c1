package formdata

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"time"

	"github.com/tollhouse-ai/gateway/fault"
	"github.com/tollhouse-ai/gateway/internal/quota"
)

// Quota bounds what all forms take on disk together. One owner leaves something for the others
// ([quota.Fair]). It is safe for concurrent use.
type Quota struct {
	most  int64
	taken quota.Fair
}

// NewQuota makes a quota of most bytes.
func NewQuota(most int64) *Quota { return &Quota{most: most} }

// take reports whether the owner may use n more bytes; n below 0 gives some back.
func (q *Quota) take(owner string, n int64) bool {
	switch {
	case q == nil:
	case n < 0:
		q.taken.Give(owner, -n)
	default:
		return q.taken.Take(owner, n, q.most)
	}
	return true
}

// spool keeps the contents of a form: small ones in memory, and the rest
// one after the other in a temporary file.
type spool struct {
	options Options
	left    int   // bytes of memory
	size    int64 // of the file
	file    *os.File
	named   bool // the system does not take the name from a file that is open
}

// begin begins a content. The one before it has ended.
func (s *spool) begin() *content { return &content{spool: s} }

// content is one part's. It moves from memory to the file when there is not
// enough memory for it.
type content struct {
	spool  *spool
	memory []byte
	onDisk bool
	start  int64 // in the file
	size   int64
}

var errQuota = errors.New("the quota for uploads on disk is used up")

// Write keeps p.
func (c *content) Write(p []byte) (int, error) {
	s := c.spool
	c.size += int64(len(p))
	if !c.onDisk && len(p) <= s.left {
		if need := len(c.memory) + len(p); need > cap(c.memory) {
			c.memory = slices.Grow(c.memory, min(max(2*need, 4<<10), len(c.memory)+s.left)-len(c.memory))
		}
		c.memory = append(c.memory, p...)
		s.left -= len(p)
		return len(p), nil
	}
	if !c.onDisk {
		c.onDisk, c.start = true, s.size
		s.left += len(c.memory)
		if err := s.save(c.memory); err != nil {
			return 0, err
		}
		c.memory = nil
	}
	return len(p), s.save(p)
}

// save appends p to the file.
func (s *spool) save(p []byte) error {
	if len(p) == 0 {
		return nil
	}
	if !s.options.Quota.take(s.options.Owner, int64(len(p))) {
		return full(errQuota)
	}
	s.size += int64(len(p))
	if s.file == nil {
		f, err := os.CreateTemp(s.options.Dir, "tollhouse-form-*")
		if err != nil {
			return full(err)
		}
		s.file, s.named = f, os.Remove(f.Name()) != nil
	}
	if _, err := s.file.Write(p); err != nil {
		return full(err)
	}
	return nil
}

// full is the refusal of a form that the disk does not take.
func full(err error) error {
	return &fault.Error{
		Code: fault.ServiceUnavailable, RetryAfter: time.Second, Err: err,
		Message: "The gateway has no room for the upload at the moment. Send the request again.",
	}
}

// end ends the content: how long it is, and how it is read again.
func (c *content) end() (size int64, open func() (io.ReadCloser, error)) {
	if !c.onDisk {
		data := c.memory
		return c.size, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
	}
	file, start, size := c.spool.file, c.start, c.size
	return size, func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(file, start, size)), nil }
}

// close frees the temporary file.
func (s *spool) close() error {
	s.options.Quota.take(s.options.Owner, -s.size)
	s.size = 0
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	if s.named {
		err = errors.Join(err, os.Remove(s.file.Name()))
	}
	return err
}
