package policy

import "fmt"

// A Preference is what one layer says about where and how a command runs. What it leaves out, the
// next layer says.
type Preference struct {
	Host     *Host     `json:"host,omitempty"`
	Security *Security `json:"security,omitempty"`
	Ask      *Ask      `json:"ask,omitempty"`
	Node     string    `json:"node,omitempty"`
	Source   string    `json:"-"` // for people: "tools.exec of the agent"
}

// Layers are what each layer prefers for one command, and where the request comes from.
type Layers struct {
	Parameter Preference // of the tool's call: it can only tighten
	Session   Preference
	Agent     Preference
	Global    Preference
	Elevated  bool // an authorized operator said so for this session: gateway and full
	InSandbox bool // the request comes out of a sandbox
	NoSandbox bool // this host cannot sandbox
}

// A Placement is where a command runs, and how much of it the configuration allows.
type Placement struct {
	Host     Host
	Node     string
	Security Security
	Ask      Ask
	Why      []Step
}

// A Step is one line of how a decision came about.
type Step struct {
	About string `json:"about"` // "host", "security", "allowlist"
	Text  string `json:"text"`
}

// A HostError says that a command may not run where it was sent.
type HostError struct {
	Requested, Configured Host
	FromSandbox           bool
}

func (e *HostError) Error() string {
	from := ""
	if e.FromSandbox {
		from = " from a sandbox"
	}
	return fmt.Sprintf("host %s was asked for%s, and the configuration says %s", e.Requested, from, e.Configured)
}

// Hint says what a person would do.
func (e *HostError) Hint() string {
	return fmt.Sprintf("leave the host out, or configure it: host %s, or auto where requests may choose", e.Requested)
}

// A NoSandboxError says that a command was to run in a sandbox, and that there is none. It never
// runs without.
type NoSandboxError struct{}

func (NoSandboxError) Error() string {
	return "the command was to run in a sandbox, and this host cannot make one"
}

// Place resolves host, node, security and ask. Tool parameter, session, agent, global, built-in:
// the first that says something counts, except that a parameter can only tighten.
func Place(l Layers) (Placement, error) {
	p := Placement{}
	if err := p.placeHost(l); err != nil {
		return Placement{}, err
	}
	p.placeSecurity(l)
	p.placeAsk(l)
	return p, nil
}

func (p *Placement) step(about, format string, a ...any) {
	p.Why = append(p.Why, Step{about, fmt.Sprintf(format, a...)})
}

func (l *Layers) configured() [3]Preference { return [...]Preference{l.Session, l.Agent, l.Global} }

var layerNames = [...]string{"the session", "the agent", "the global configuration"}

func (p *Placement) placeHost(l Layers) error {
	configured, source := HostSandbox, "built-in"
	for i, w := range l.configured() {
		if w.Host != nil {
			configured, source = *w.Host, sourceOf(w, i)
			break
		}
	}
	if l.Elevated {
		configured, source = HostGateway, "elevated by an operator"
	}
	p.Host = configured
	if configured == HostAuto {
		p.Host = HostSandbox
	}
	if requested := l.Parameter.Host; requested != nil {
		if *requested != configured && configured != HostAuto || *requested >= HostAuto {
			return &HostError{*requested, configured, l.InSandbox}
		}
		p.Host, source = *requested, "the request, which may choose"
	}
	if p.Host > HostNode {
		return fmt.Errorf("no host is %d", p.Host)
	}
	if p.Host == HostSandbox && l.NoSandbox {
		return NoSandboxError{}
	}
	p.step("host", "%s (%s)", p.Host, source)
	if p.Host == HostNode {
		p.placeNode(l)
	}
	return nil
}

// placeNode takes the node from the configuration, where it names one: a request cannot choose
// another.
func (p *Placement) placeNode(l Layers) {
	for i, w := range l.configured() {
		if w.Node != "" {
			p.Node = w.Node
			p.step("node", "%s (%s)", w.Node, sourceOf(w, i))
			return
		}
	}
	p.Node = l.Parameter.Node
	p.step("node", "%s (the request)", p.Node)
}

func sourceOf(w Preference, i int) string {
	if w.Source != "" {
		return w.Source
	}
	return layerNames[i]
}

func (p *Placement) placeSecurity(l Layers) {
	p.Security = SecurityDeny
	source := "built-in"
	if p.Host == HostSandbox {
		p.Security = SecurityFull // what it may do is what the sandbox shows it
	}
	for i, w := range l.configured() {
		if w.Security != nil {
			p.Security, source = *w.Security, sourceOf(w, i)
			break
		}
	}
	if l.Elevated {
		p.Security, source = SecurityFull, "elevated by an operator"
	}
	if w := l.Parameter.Security; w != nil && *w < p.Security {
		p.Security, source = *w, "the request, which can tighten"
	}
	p.step("security", "%s (%s)", p.Security, source)
}

func (p *Placement) placeAsk(l Layers) {
	p.Ask = AskOnMiss
	source := "built-in"
	for i, w := range l.configured() {
		if w.Ask != nil {
			p.Ask, source = *w.Ask, sourceOf(w, i)
			break
		}
	}
	if w := l.Parameter.Ask; w != nil && *w < p.Ask {
		p.Ask, source = *w, "the request, which can tighten"
	}
	p.step("ask", "%s (%s)", p.Ask, source)
}
