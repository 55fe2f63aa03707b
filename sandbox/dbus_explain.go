package sandbox

import (
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/process"
)

// DescribeBus says in a line what a command of the plan reaches of the session bus.
func (p *Plan) DescribeBus() string {
	text := p.SessionBus.String()
	switch {
	case p.SessionBus == profile.SessionBusDeny:
		return text
	case p.Bus.Place == "":
		return text + ": " + p.Bus.Why
	case p.Bus.Proxy == "":
		return text + ": all of it, a way out of the sandbox"
	}
	return text + ": " + strings.Join(p.Bus.Names, ", ") + ", through " + p.Bus.Proxy
}

// checkSessionBus examines what a command would find.
func checkSessionBus(plan *Plan) Check {
	bus, c := plan.Bus, Check{Name: "session bus", State: CheckOK, Found: plan.DescribeBus()}
	weak := func(mend string) Check {
		c.State, c.Mend = CheckWeak, mend
		return c
	}
	switch {
	case bus.Why == whyNoBus, bus.Why == whyBusWithheld:
		return c
	case bus.Why == whyNoBusProxy:
		return weak(hintProxy)
	case bus.Place == "":
		return weak("")
	case bus.Proxy == "":
		return weak(`set sessionBus to "filtered"`)
	}
	if err := bus.examine(); err != nil {
		c.Found += ", but " + err.Error()
		return weak(`start the session's bus, or set sessionBus to "deny"`)
	}
	return c
}

// examine tries whether the bus answers and its filter may be executed.
func (bus Bus) examine() error {
	if err := process.TrustProgram(bus.Proxy); err != nil {
		return err
	}
	var failure error
	for _, server := range bus.Servers {
		d, err := server.connect()
		if err == nil {
			d.Close()
			return nil
		}
		failure = err
	}
	return failure
}
