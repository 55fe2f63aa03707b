package sandbox

import (
	"testing"

	"github.com/clairun/clai-sandbox/profile"
)

func TestCertificatesThatAreNotShownAreNotNamed(t *testing.T) {
	baseline := profile.Origin{Kind: profile.OriginBaseline}
	for name, c := range map[string]struct {
		variable profile.Variable
		stays    bool
	}{
		"in the home":                  {profile.Variable{Name: "SSL_CERT_FILE", Value: "/home/u/company.pem", Origin: baseline}, true},
		"of the system":                {profile.Variable{Name: "SSL_CERT_DIR", Value: "/usr/lib:/usr/lib64", Origin: baseline}, true},
		"by a link":                    {profile.Variable{Name: "CURL_CA_BUNDLE", Value: "/home/u/link.pem", Origin: baseline}, true},
		"by its name alone":            {profile.Variable{Name: "SSL_CERT_FILE", Value: "company.pem", Origin: baseline}, true},
		"elsewhere":                    {profile.Variable{Name: "NODE_EXTRA_CA_CERTS", Value: "/srv/company.pem", Origin: baseline}, false},
		"one of a list elsewhere":      {profile.Variable{Name: "SSL_CERT_DIR", Value: "/usr/lib:/srv", Origin: baseline}, false},
		"by a link that leads out":     {profile.Variable{Name: "GIT_SSL_CAINFO", Value: "/home/u/out.pem", Origin: baseline}, false},
		"nowhere":                      {profile.Variable{Name: "REQUESTS_CA_BUNDLE", Value: "/home/u/none.pem", Origin: baseline}, true},
		"elsewhere, and asked for":     {profile.Variable{Name: "SSL_CERT_FILE", Value: "/srv/company.pem", Origin: profile.Origin{Kind: profile.OriginFlag}}, true},
		"elsewhere, of another matter": {profile.Variable{Name: "LANG", Value: "/srv/company.pem", Origin: baseline}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p := fakeProfile(home)
			p.Environment = append(p.Environment, c.variable)
			plan, err := Build(p, newFakeTree(append([]string{"/home/u/company.pem", "/srv/company.pem", "/home/u/link.pem -> company.pem", "/home/u/out.pem -> /srv/company.pem"}, usual...)...))
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, v := range plan.Environment {
				if v.Name == c.variable.Name {
					got = v.Value
				}
			}
			if stays := got == c.variable.Value; stays != c.stays || !c.stays && got != "" || (len(plan.Notices) == 0) != c.stays {
				t.Errorf("%q, %+v", got, plan.Notices)
			}
		})
	}
}
