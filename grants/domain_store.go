package grants

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/profile/whole"
)

// DomainsName is the file in the state directory with the domains that were granted for always. One
// gateway writes it, and runs read it.
const DomainsName = "domains.json"

const (
	domainsVersion = 1
	maxDomainsFile = 4 << 20
	// MaxStoredDomains is how many are stored of all agents.
	MaxStoredDomains = 4096
)

type domainsFile struct {
	Version int     `json:"version"`
	Grants  []Grant `json:"grants"`
}

// StoredDomains reads what is stored, also what is over. Without a file it is nothing.
func StoredDomains(dir string) ([]Grant, error) {
	path := filepath.Join(dir, DomainsName)
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	damaged := fmt.Errorf("%s cannot be read as granted domains, so none of them is used; move it away, and grant them anew", profile.Printable(path))
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, damaged
	}
	text, err := io.ReadAll(io.LimitReader(file, maxDomainsFile+1))
	if err != nil {
		return nil, err
	}
	var f domainsFile
	if len(text) > maxDomainsFile || json.Unmarshal(text, &f) != nil || f.Version != domainsVersion || len(f.Grants) > MaxStoredDomains {
		return nil, damaged
	}
	for _, g := range f.Grants {
		if _, err := g.DomainRule(); err != nil || g.Agent == "" || g.ID == "" || g.Scope != ScopeAlways {
			return nil, damaged
		}
	}
	return f.Grants, nil
}

// StoreDomains puts other grants in the place of those that are stored.
func StoreDomains(dir string, list []Grant) error {
	if len(list) > MaxStoredDomains {
		return fmt.Errorf("%d domains are granted already; clai-sandbox grants revoke takes one away", MaxStoredDomains)
	}
	text, err := json.MarshalIndent(domainsFile{domainsVersion, list}, "", " ")
	if err != nil {
		return err
	}
	return whole.Write(filepath.Join(dir, DomainsName), DomainsName+".", append(text, '\n'))
}

// CurrentDomains are the domains that an agent was granted for always, and that hold now. Nothing
// stored can keep a run from starting.
func CurrentDomains(dir, agent string, now time.Time) ([]Grant, []Notice) {
	list, err := StoredDomains(dir)
	if err != nil {
		return nil, []Notice{{Kind: NoticeStore, Text: err.Error()}}
	}
	return slices.DeleteFunc(list, func(g Grant) bool { return g.Agent != agent || g.Expired(now) }), nil
}

// DomainRule is the grant of a domain as a sandbox takes it.
func (g Grant) DomainRule() (profile.DomainRule, error) {
	rule, err := profile.ParseDomainRule(g.Domain)
	rule.Origin = profile.Origin{Kind: g.Origin.Kind, Source: "grant " + g.ID}
	return rule, err
}
