package sandbox

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// mounterPatience bounds the wait for the mounter's answer: it does nothing that waits, but a network file system may.
const mounterPatience = 10 * time.Second

// A mounterProcess is the mounter as seen from the launcher.
type mounterProcess struct {
	process *process
	orders  *os.File
	answers *os.File
	decoder *json.Decoder
}

// startMounter starts the mounter of a sandbox, whose pid 1 has this number outside.
//
// Only a process with a single thread can enter a user namespace, which no program of Go's is: the stub does, and executes this program
// in its place.
func startMounter(init int) (*mounterProcess, error) {
	sandbox, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", init), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, calling("open the sandbox's mount namespace", err)
	}
	files := []descriptor{descriptor(sandbox)}
	defer func() {
		for i := range files {
			files[i].close()
		}
	}()
	owner, err := unix.IoctlRetInt(sandbox, unix.NS_GET_USERNS)
	if err != nil {
		return nil, calling("NS_GET_USERNS", err)
	}
	files = append(files, descriptor(owner))
	program, err := openProgram()
	if err != nil {
		return nil, err
	}
	report, writer, err := pipe()
	if err != nil {
		program.close()
		return nil, err
	}
	defer report.close()
	files = append(files, program, writer)
	own := len(files) + 2 // the report's number there
	stub, err := sealedProgram("mounter", enterNamespaces(own-1, own).image(own))
	if err != nil {
		return nil, err
	}
	files = append(files, stub)

	m := &mounterProcess{}
	theirIn, ourOrders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	ourAnswers, theirOut, err := os.Pipe()
	if err != nil {
		theirIn.Close()
		ourOrders.Close()
		return nil, err
	}
	m.orders, m.answers, m.decoder = ourOrders, ourAnswers, json.NewDecoder(ourAnswers)
	m.process, err = startProcess("/proc/self/fd/"+strconv.Itoa(2+len(files)), []string{mounterName}, Stdio{In: theirIn, Out: theirOut, Err: nil},
		files, &syscall.SysProcAttr{Setpgid: true})
	theirIn.Close()
	theirOut.Close()
	for i := range files {
		files[i].close()
	}
	if err != nil {
		m.orders.Close()
		m.answers.Close()
		return nil, calling("start the mounter", err)
	}
	if err := m.answer(); err != nil {
		m.close()
		if what, errno, failed := readReport(report); failed {
			err = fmt.Errorf("enter the sandbox's namespaces (%c): %w", what, errno)
		}
		return nil, err
	}
	return m, nil
}

// mounterCapabilities are what the mounter needs: to mount, to enter, and to make what it mounts on.
var mounterCapabilities = []uint{unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_SYS_CHROOT, unix.CAP_SYS_ADMIN}

// enterNamespaces lists the calls that make a process the mounter.
func enterNamespaces(program, report int) *stubProgram {
	p := &stubProgram{}
	p.call(0, unix.SYS_FCNTL, uint64(report), unix.F_SETFD, unix.FD_CLOEXEC)
	p.call(0, unix.SYS_SETNS, mounterOwner, unix.CLONE_NEWUSER)
	p.call(0, unix.SYS_UNSHARE, unix.CLONE_NEWNS)
	p.call(0, unix.SYS_MOUNT, 0, p.text("/"), 0, unix.MS_REC|unix.MS_PRIVATE, 0)
	// Kept over the execution, which would take them from everybody but root.
	held := uint32(0)
	for _, capability := range mounterCapabilities {
		held |= 1 << capability
	}
	words := func(list ...uint32) uint64 {
		var text []byte
		for _, w := range list {
			text = append(text, byte(w), byte(w>>8), byte(w>>16), byte(w>>24))
		}
		return p.put(text)
	}
	p.call(0, unix.SYS_CAPSET, words(unix.LINUX_CAPABILITY_VERSION_3, 0), words(held, held, held, 0, 0, 0))
	for _, capability := range mounterCapabilities {
		p.call(0, unix.SYS_PRCTL, unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_RAISE, uint64(capability), 0, 0)
	}
	p.call(0, unix.SYS_EXECVE, p.text("/proc/self/fd/"+strconv.Itoa(program)), p.vector([]string{mounterName}), p.vector(nil))
	return p
}

// mountError is why something could not be mounted, or taken away.
type mountError struct {
	order mountOrder
	mountAnswer
}

func (e *mountError) Error() string {
	text := e.mountAnswer.Error
	if e.Path != "" && e.Path != e.order.Path {
		text = printable(e.Path) + ": " + text
	}
	return text
}

func (e *mountError) Unwrap() error {
	if e.Errno == 0 {
		return nil
	}
	return e.Errno
}

// do has one order carried out.
func (m *mounterProcess) do(order mountOrder) error {
	text, err := json.Marshal(order)
	if err != nil {
		return err
	}
	m.orders.SetWriteDeadline(time.Now().Add(mounterPatience))
	if _, err := m.orders.Write(append(text, '\n')); err != nil {
		return calling("tell the mounter", err)
	}
	err = m.answer()
	var failed *mountError
	if errors.As(err, &failed) {
		failed.order = order
	}
	return err
}

func (m *mounterProcess) answer() error {
	m.answers.SetReadDeadline(time.Now().Add(mounterPatience))
	var answer mountAnswer
	if err := m.decoder.Decode(&answer); err != nil {
		return calling("hear from the mounter", err)
	}
	if answer.Error != "" {
		return &mountError{mountAnswer: answer}
	}
	return nil
}

// close ends the mounter. What it has mounted stays.
func (m *mounterProcess) close() {
	m.orders.Close()
	m.answers.Close()
	m.process.kill()
	m.process.wait()
}
