package profile

import (
	"os"
	"strings"
	"testing"
)

func TestDevicesAreThoseThatAPersonNames(t *testing.T) {
	const configured = `{"defaults": {"execution": {"sandbox": {"devices": ["kvm", "gpu"]}}}}`
	enforced := func(list string) string {
		return `{"enforced": {"sandbox": {"devices": ` + list + `}}, ` + configured[1:]
	}
	for _, c := range []struct {
		name, config string
		request      Request
		want         string // the names, or a part of the error
	}{
		{"nobody", "", Request{}, "none"},
		{"the configuration", configured, Request{}, "/dev/kvm, gpu"},
		{"the command line adds", configured, Request{Devices: []string{"/dev//fuse", "/dev/kvm"}}, "/dev/fuse, /dev/kvm, gpu"},
		{"an agent's list replaces", configured[:len(configured)-1] + `, "agents": {"main": {"execution": {"sandbox": {"devices": []}}}}}`, Request{}, "none"},
		{"what is enforced takes away", enforced(`["kvm"]`), Request{Devices: []string{"/dev/fuse"}}, "/dev/kvm"},
		{"what is enforced gives nothing", enforced(`["/dev/net/tun", "gpu"]`), Request{}, "gpu"},
		{"none is enforced", enforced(`[]`), Request{Devices: []string{"/dev/fuse"}}, "none"},
		{"no device", "", Request{Devices: []string{"fuse"}}, `--device: "fuse" is not a device: write gpu, kvm, or its path, as /dev/fuse`},
		{"elsewhere", "", Request{Devices: []string{"/dev/../tmp/kvm"}}, `--device: "/dev/../tmp/kvm" is not a device`},
		{"all", "", Request{Devices: []string{"/dev"}}, `--device: "/dev" is not a device`},
		{"unprintable", "", Request{Devices: []string{"/dev/\x1b[2J"}}, `is not a device`},
		{"too many", "", Request{Devices: strings.Fields("/dev/y" + manyDevices())}, "more than 32 devices"},
	} {
		config, err := load(t, c.config, "")
		if err != nil {
			t.Fatal(c.name, err)
		}
		p, err := Resolve(config, caller(), c.request)
		got := deviceList(p.Devices)
		if err != nil {
			got = err.Error()
		}
		if err == nil && got != c.want || !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		if strings.HasPrefix(c.config, `{"enforced"`) && (len(p.Narrowed) != 1 || p.Narrowed[0].Key != "sandbox.devices" || p.Narrowed[0].To != c.want) {
			t.Errorf("%s: %+v", c.name, p.Narrowed)
		}
	}
}

func manyDevices() string {
	var b strings.Builder
	for i := range maxDevices {
		b.WriteString(" /dev/x" + strings.Repeat("x", i+1))
	}
	return b.String()
}

func TestAProjectGivesNoDevice(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/"+ProjectName, []byte(`{"sandbox": {"devices": ["kvm"]}}`), 0o666); err != nil {
		t.Fatal(err)
	}
	project, err := ReadProject(dir)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Resolve(&Config{}, caller(), Request{Project: project, Devices: []string{"/dev/fuse"}})
	if err != nil || len(p.Devices) != 0 {
		t.Errorf("%+v, %v", p.Devices, err)
	}
}
