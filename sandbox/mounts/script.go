package mounts

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/trampoline"
)

// A script is a list of calls for the mounter that is sent in as many pieces as it takes. The first
// failure of a call that must not fail ends it: nothing after it is done.
type script struct {
	m       *Mounter
	list    *trampoline.List
	pending []*result
	path    string // what the calls are about, for errors
	op      string
	err     error
	failed  *result            // the call that ended it
	openHow uint64             // the address of a struct open_how in this piece's data, if it has one
	results []result           // some to be used
	views   map[string]*result // of the sandbox's own directories, to write in: see view
	made    map[place]bool     // directories that are made in them
	unused  []*result          // open descriptors that are of no use any more: see later
}

// A result is what a call returned, or will return.
type result struct {
	script *script
	number int // in the list, until it is sent
	value  int // afterwards
	path   string
	op     string
	// of a call that fills a buffer: where it is in the list's data, how long it is, and what was
	// in it afterwards
	buffer uint64
	size   int
	data   []byte
}

func (m *Mounter) script() *script { return &script{m: m, list: &trampoline.List{}} }

// room is how much a few calls about one thing may take together.
const room = 32 << 10

// on says what the next calls are about. Only here a piece of the script may end: what is put into
// the list's data for a call is in the same piece.
func (s *script) on(op, path string) *script {
	if s.list.Size() > trampoline.MaxList-room {
		s.flush()
	}
	s.op, s.path = op, path
	return s
}

// call adds a call. Arguments are numbers, texts, and results of earlier calls.
func (s *script) call(flags uint32, number uintptr, arguments ...any) *result {
	var list [6]uint64
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
	if len(s.results) == 0 {
		s.results = make([]result, 64)
	}
	r := &s.results[0]
	s.results = s.results[1:]
	*r = result{script: s, number: s.list.Call(flags, number, list[:len(arguments)]...), path: s.path, op: s.op}
	s.pending = append(s.pending, r)
	return r
}

// fills says that a call fills a buffer in the list's data.
func (r *result) fills(buffer uint64, size int) *result {
	r.buffer, r.size = buffer, size
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

// later says that a descriptor is of no use any more after the script: to let a mount go that is
// mounted nowhere takes the kernel longer than all else. What closes it is tidy.
func (s *script) later(r *result) { s.unused = append(s.unused, r) }

// drop leaves to tidy what is of no use any more. The script was carried out.
func (s *script) drop() {
	for _, view := range s.views {
		s.later(view)
	}
	for _, r := range s.unused {
		if r.script == nil && r.value >= 0 {
			s.m.unused = append(s.m.unused, r.value)
		}
	}
	s.unused, s.views = nil, nil
}

// tidy has closed what is of no use any more, and does not wait for it.
func (m *Mounter) tidy() {
	s := m.script()
	for _, fd := range m.unused {
		s.on("close", "").try(unix.SYS_CLOSE, fd)
	}
	m.unused = nil
	s.clean()
	s.sendOff()
}

// flush has the calls carried out that were added since the last one.
func (s *script) flush() error {
	if s.err != nil || len(s.pending) == 0 {
		s.abandon()
		return s.err
	}
	if s.err = s.send(); s.err != nil {
		s.abandon()
		return s.err
	}
	results, err := s.m.answer(s.list)
	var failed *trampoline.CallError
	switch {
	case errors.As(err, &failed) && failed.Number < len(s.pending):
		r := s.pending[failed.Number]
		s.failed = r
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
			r.data = results.Data(r.buffer, r.size)
		}
	}
	s.renew()
	return nil
}

// send sends the calls, after the answer to what was sent and not waited for.
func (s *script) send() error {
	if err := s.m.entered(); err != nil {
		return err
	}
	for len(s.m.sent) > 0 && !s.m.lost {
		s.m.answer(s.m.sent[0])
		s.m.sent = s.m.sent[1:]
	}
	if s.m.lost {
		return trampoline.ErrSilent
	}
	return s.list.Send(s.m.socket)
}

// sendOff is flush for calls that may fail, and whose results nobody needs: it does not wait for
// the answer.
func (s *script) sendOff() {
	if s.err == nil && len(s.pending) > 0 && s.send() == nil {
		s.m.sent = append(s.m.sent, s.list)
		s.list = &trampoline.List{}
	}
	s.abandon()
}

// answer waits for the answer to a list. After one that did not come in time, no other one can be
// told from it: there is none any more.
func (m *Mounter) answer(list *trampoline.List) (*trampoline.Results, error) {
	results, err := list.Answer(m.socket)
	m.lost = m.lost || errors.Is(err, trampoline.ErrSilent)
	return results, err
}

// renew begins another piece.
func (s *script) renew() {
	s.list.Reset()
	s.pending, s.openHow = s.pending[:0], 0
}

// abandon gives up what was not carried out.
func (s *script) abandon() {
	for _, r := range s.pending {
		r.value, r.script = -int(unix.ECANCELED), nil
	}
	s.renew()
}

// failed is the errno of a call that was allowed to fail, once it was carried out.
func (r *result) failed() error {
	if r.value < 0 {
		return unix.Errno(-r.value)
	}
	return nil
}
