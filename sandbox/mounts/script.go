package mounts

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A script is a list of calls for the mounter that is sent in as many pieces as it takes. The first failure of a call that
// must not fail ends it: nothing after it is done.
type script struct {
	m       *Mounter
	list    *trampoline.List
	pending []*result
	path    string // what the calls are about, for errors
	op      string
	err     error
	views   map[string]*result // of the sandbox's own directories, to write in: see view
}

// A result is what a call returned, or will return.
type result struct {
	script *script
	number int // in the list, until it is sent
	value  int // afterwards
	path   string
	op     string
	// of a call that fills a buffer: where it is in the list's data, and what was in it afterwards
	buffer uint64
	data   []byte
}

func (m *Mounter) script() *script { return &script{m: m, list: &trampoline.List{}} }

// room is how much a few calls about one thing may take together.
const room = 32 << 10

// on says what the next calls are about. Only here a piece of the script may end: what is put into the list's data for a
// call is in the same piece.
func (s *script) on(op, path string) *script {
	if s.list.Size() > trampoline.MaxList-room {
		s.flush()
	}
	s.op, s.path = op, path
	return s
}

// call adds a call. Arguments are numbers, texts, and results of earlier calls.
func (s *script) call(flags uint32, number uintptr, arguments ...any) *result {
	list := make([]uint64, len(arguments))
	for i, argument := range arguments {
		switch a := argument.(type) {
		case int:
			list[i] = uint64(a)
		case uint64:
			list[i] = a
		case string:
			list[i] = s.list.Text(a)
		case *result:
			list[i] = uint64(a.value)
			if a.script != nil {
				list[i] = s.list.Result(a.number)
			}
		default:
			panic("mounts: an argument of no known type")
		}
	}
	r := &result{script: s, number: s.list.Call(flags, number, list...), path: s.path, op: s.op}
	s.pending = append(s.pending, r)
	return r
}

// do is call, for what must not fail.
func (s *script) do(number uintptr, arguments ...any) *result {
	return s.call(0, number, arguments...)
}

// try is call, for what may fail.
func (s *script) try(number uintptr, arguments ...any) *result {
	return s.call(trampoline.MayFail, number, arguments...)
}

func (s *script) close(r *result) { s.try(unix.SYS_CLOSE, r) }

// flush has the calls carried out that were added since the last one.
func (s *script) flush() error {
	if s.err != nil || len(s.pending) == 0 {
		s.abandon()
		return s.err
	}
	if s.err = s.list.Send(s.m.socket); s.err != nil {
		s.abandon()
		return s.err
	}
	results, err := s.list.Answer(s.m.socket)
	var failed *trampoline.CallError
	switch {
	case errors.As(err, &failed) && failed.Number < 0:
		s.err = errors.Join(ErrRefused, failed.Errno)
	case errors.As(err, &failed) && failed.Number < len(s.pending):
		r := s.pending[failed.Number]
		s.err = &Error{Path: r.path, Op: r.op, Err: failed.Errno}
	case err != nil:
		s.err = err
	}
	if s.err != nil {
		s.abandon()
		return s.err
	}
	for _, r := range s.pending {
		r.value, r.script = results.Of(r.number), nil
		if r.buffer != 0 {
			r.data = append([]byte(nil), results.Data(r.buffer, len(r.data))...)
		}
	}
	s.pending, s.list = nil, &trampoline.List{}
	return nil
}

// abandon gives up what was not carried out.
func (s *script) abandon() {
	for _, r := range s.pending {
		r.value, r.script = -int(unix.ECANCELED), nil
	}
	s.pending, s.list = nil, &trampoline.List{}
}

// failed is the errno of a call that was allowed to fail, once it was carried out.
func (r *result) failed() error {
	if r.value < 0 {
		return unix.Errno(-r.value)
	}
	return nil
}
