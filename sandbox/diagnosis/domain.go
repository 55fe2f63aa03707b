package diagnosis

import (
	"slices"
	"strings"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox"
)

// unresolved are how programs say that a name leads nowhere.
var unresolved = []*pattern{
	lazily(`(?i)could not resolve (?:host|hostname|proxy)(?: name)?:? '?([a-z0-9._-]+)`), // curl, git, ssh
	lazily(`(?i)unable to resolve host (?:address )?[‘'"]?([a-z0-9._-]+)`),               // wget
	lazily(`(?i)getaddrinfo (?:enotfound|eai_again|failed,? host=)\s*'?([a-z0-9._-]+)`),  // node
	lazily(`(?i)(?:dial|lookup) (?:tcp: lookup )?([a-z0-9._-]+)(?:: | on )`),             // go
	lazily(`(?i)^(?:[a-z]+: )?unknownhostexception: ([a-z0-9._-]+)`),
	lazily(`(?i)java\.net\.unknownhostexception: ([a-z0-9._-]+)`),
	lazily(`(?i)failed to resolve '([a-z0-9._-]+)'`),             // urllib3
	lazily(`(?i)could not translate host name "([a-z0-9._-]+)"`), // psql
	lazily(`(?i)^(?:\S*/)?(?:ba)?sh: line \d+: ([a-z0-9._-]+): temporary failure in name resolution`),
	lazily(`(?i)host='([a-z0-9._-]+)', port=`), // requests
}

// refusing are the words with which programs tell that a proxy refused.
var refusing = []string{"clai-sandbox: ", "response 403", "http code 403 from proxy", "proxy tunneling failed", "proxyerror", "tunnel connection failed: 403", "proxy connect aborted",
	"403 forbidden", "error 403", "unable to connect to proxy", "returned error: 403", "connect tunnel failed", "http 403"}

// nowhere are the words for a network that leads nowhere.
var nowhere = []string{"network is unreachable", "temporary failure in name resolution", "name or service not known", "enetunreach", "could not resolve", "unable to resolve host",
	"enotfound", "eai_again", "server misbehaving", "connection refused"}

// domain is the destination that a line says could not be reached, if that is the sandbox's doing.
func (d *diagnosis) domain(line string) []Missing {
	if d.Plan.Network == profile.NetworkEnabled {
		return nil
	}
	small := strings.ToLower(line)
	if d.Plan.Network == profile.NetworkDisabled {
		return d.withoutNetwork(line, small)
	}
	refused := slices.ContainsFunc(refusing, func(words string) bool { return strings.Contains(small, words) })
	// pip says of an index that it could not reach only in warnings.
	index := strings.Contains(small, "(from versions: none)")
	named := hostIn(line)
	var list []Missing
	for _, notice := range d.Notices {
		if notice.Kind != sandbox.NoticeNetwork || notice.Domain == "" || len(list) == maxMissing {
			continue
		}
		host := notice.Domain
		if i := strings.LastIndexByte(host, ':'); i > 0 {
			host = strings.Trim(host[:i], "[]")
		}
		if strings.Contains(small, host) && (refused || complains(line)) || refused && d.onlyRefusal(notice.Domain) ||
			index && (host == "pypi.org" || d.mentions(host)) {
			list = append(list, refusedDomain(notice.Domain))
		}
	}
	if list == nil && named != "" {
		// A program that does not ask the proxy cannot resolve any name; of one that the rules
		// allow, that is what it lacks.
		to, err := profile.ParseDestination(named, 443)
		switch {
		case err != nil || loopback(named):
		case d.Plan.Domains.Judge(to).Verdict != profile.DomainAllowed:
			list = append(list, refusedDomain(to.Host()))
		default:
			list = append(list, notByProxy(to.Host()))
		}
	} else if list == nil && directly.MatchString(line) {
		list = append(list, notByProxy(""))
	}
	return list
}

// directly are the words of a program that looked a name up itself, or called an address: there is
// none but the loopback's.
var directly = lazily(`(?i)temporary failure in name resolution|network is unreachable|\beai_again\b|\benetunreach\b`)

func notByProxy(domain string) Missing {
	who := "what it wants to reach"
	if domain != "" {
		who = profile.Printable(domain) + ", which is allowed"
	}
	return Missing{Kind: Domain, Domain: domain, Why: NotByProxy,
		Hint: "the network of this sandbox lets out only what asks its proxy (HTTPS_PROXY, ALL_PROXY), and this program called " + who + ", without it; use one that asks it, as curl does; or a person can open the whole network, with --network enabled"}
}

// onlyRefusal reports whether nothing else was refused: then words that name no host are about it.
func (d *diagnosis) onlyRefusal(domain string) bool {
	return !slices.ContainsFunc(d.Notices, func(n sandbox.Notice) bool { return n.Kind == sandbox.NoticeNetwork && n.Domain != domain })
}

// mentions reports whether the command's words, or what it wrote, have a host in them.
func (d *diagnosis) mentions(host string) bool {
	return strings.Contains(d.command.text, host) || slices.ContainsFunc(slices.Concat(tail(d.Stderr), tail(d.Stdout)), func(line string) bool { return strings.Contains(line, host) })
}

func refusedDomain(domain string) Missing {
	return Missing{Kind: Domain, Domain: domain, Why: DomainRefused,
		Hint: "the network of this sandbox refuses " + profile.Printable(domain) + "; a person can allow it with --allow-domain, or in allowedDomains of the configuration"}
}

func (d *diagnosis) withoutNetwork(line, small string) []Missing {
	host := hostIn(line)
	if host == "" || loopback(host) || !slices.ContainsFunc(nowhere, func(words string) bool { return strings.Contains(small, words) }) || strings.Contains(small, "connection refused") {
		return nil
	}
	if by := d.Plan.NetworkBy; by != "" {
		return []Missing{{Kind: Domain, Domain: host, Why: NetworkDisabled, Hint: "this sandbox has no network: " + profile.Printable(by) + " says so, and nothing that you ask for changes that", closedBy: by}}
	}
	return []Missing{{Kind: Domain, Domain: host, Why: NetworkDisabled, Hint: "this sandbox has no network; a person can give it one, with --network filtered --allow-domain " + host}}
}

// hostIn is the name that a line says could not be resolved.
func hostIn(line string) string {
	for _, expression := range unresolved {
		if m := expression.FindStringSubmatch(line); m != nil {
			host := strings.ToLower(strings.Trim(m[1], "."))
			if _, _, err := profile.ParseHost(host); err == nil && strings.Contains(host, ".") {
				return host
			}
		}
	}
	return ""
}

func loopback(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasPrefix(host, "127.") || host == "::1"
}
