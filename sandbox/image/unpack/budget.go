package unpack

import (
	"context"
	"fmt"
	"io"
)

// A Budget is how much an import may take. All its archives share it.
type Budget struct {
	Bytes   int64 // of files, and of what compressed archives come to
	Entries int

	read    int64
	written int64
	seen    int
}

// A LimitError is an archive that is larger than it may be.
type LimitError struct {
	What string // what there is too much of
	Flag string // what raises the limit
}

func (e *LimitError) Error() string { return "too large: " + e.What }

func (b *Budget) entry() error {
	if b.seen++; b.seen > b.Entries {
		return &LimitError{fmt.Sprintf("more than %d entries", b.Entries), "--max-entries"}
	}
	return nil
}

func (b *Budget) file(size int64) error {
	if size > b.Bytes-b.written {
		return &LimitError{fmt.Sprintf("its files come to more than %d bytes", b.Bytes), "--max-size"}
	}
	b.written += size
	return nil
}

// Reader counts what is read of an archive, and ends with the context. Holes in files are not read.
func (b *Budget) Reader(ctx context.Context, r io.Reader) io.Reader { return &counted{ctx, b, r} }

type counted struct {
	ctx    context.Context
	budget *Budget
	r      io.Reader
}

func (c *counted) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.r.Read(p)
	if c.budget.read += int64(n); c.budget.read > c.budget.Bytes {
		return 0, &LimitError{fmt.Sprintf("its archives come to more than %d bytes", c.budget.Bytes), "--max-size"}
	}
	return n, err
}
