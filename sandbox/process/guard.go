package process

import (
	"bytes"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Guard is how a bwrap is kept from outliving us.
//
// The kernel kills bwrap with the thread that started it. But bwrap asks for the same between
// itself and its child only when the sandbox is complete, so a bwrap that is killed before leaves
// the child running. In a process id namespace of its own bwrap is the first process, and with it
// the kernel kills all others: at any time, and before it reports bwrap's own end. The first
// process of a namespace is also deaf to the terminal's signals, as bwrap must be and the command
// must not.
//
// An ordinary user needs a user namespace to make one. Where AppArmor grants that to bwrap alone,
// plain is what is left.
type Guard uint8

const (
	GuardBest      Guard = iota // what ChooseGuard says
	GuardPlain                  // none but the kernel's word that bwrap ends with its thread
	GuardNamespace              // of process ids
	GuardUser                   // of process ids, in a user namespace
)

// ChooseGuard finds the best guard that this process may use.
func ChooseGuard() Guard {
	held, _ := Permitted()
	switch {
	case os.Getuid() == 0 && held&(1<<unix.CAP_SYS_ADMIN) != 0:
		return GuardNamespace
	case appArmorRestricts():
		return GuardPlain
	default:
		return GuardUser
	}
}

// appArmorRestricts reports whether user namespaces are for programs with an AppArmor profile only
// (Ubuntu 23.10 and later). Others get one without any rights in it, and bwrap would inherit that.
func appArmorRestricts() bool {
	setting, err := os.ReadFile("/proc/sys/kernel/apparmor_restrict_unprivileged_userns")
	if err != nil || len(setting) == 0 || setting[0] != '1' {
		return false
	}
	label, err := os.ReadFile("/proc/self/attr/apparmor/current")
	return err != nil || bytes.HasPrefix(label, []byte("unconfined"))
}

// Attributes are what makes a program start with this guard.
func (g Guard) Attributes() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	switch g {
	case GuardNamespace:
		attr.Cloneflags = unix.CLONE_NEWPID
	case GuardUser:
		attr.Cloneflags = unix.CLONE_NEWPID | unix.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	}
	return attr
}
