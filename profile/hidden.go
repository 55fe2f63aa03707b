package profile

import "path/filepath"

// A HiddenPath is not shown by a grant above it, however broad: what lies there would serve whoever
// has it to act as the person elsewhere. A grant for the path itself shows it, and so does an
// explicit one above it.
type HiddenPath struct {
	Path string // absolute and clean; symbolic links are not resolved
	// Keep are the names in a hidden directory that are shown all the same, as patterns of
	// path.Match. They may have one directory before them.
	Keep []string
	// Enforced: no grant shows it.
	Enforced bool `json:",omitempty"`
	Origin   Origin
}

// credentialStores are hidden in every profile, below the home directory.
var credentialStores = []struct {
	path string
	keep []string
}{
	{".ssh", []string{"config", "config.d/*", "known_hosts", "known_hosts2", "authorized_keys", "allowed_signers", "*.pub"}},
	{".gnupg", nil},
	{".password-store", nil},
	{".local/share/keyrings", nil},
	{".local/share/kwalletd", nil},
	{".pki", nil},
	{".Xauthority", nil},

	// clouds and clusters
	{".aws", nil},
	{".azure", nil},
	{".config/gcloud", nil},
	{".boto", nil},
	{".s3cfg", nil},
	{".oci", nil},
	{".kube", nil},
	{".config/doctl", nil},
	{".config/rclone", nil},
	{".fly", nil},
	{".terraform.d/credentials.tfrc.json", nil},
	{".terraformrc", nil},
	{".vault-token", nil},
	{".config/sops", nil},
	{".config/op", nil},

	// registries and forges
	{".docker/config.json", nil},
	{".config/containers/auth.json", nil},
	{".netrc", nil},
	{".npmrc", nil},
	{".yarnrc.yml", nil},
	{".pypirc", nil},
	{".cargo/credentials", nil},
	{".cargo/credentials.toml", nil},
	{".gem/credentials", nil},
	{".m2/settings.xml", nil},
	{".gradle/gradle.properties", nil},
	{".composer/auth.json", nil},
	{".config/composer/auth.json", nil},
	{".nuget/NuGet/NuGet.Config", nil},
	{".git-credentials", nil},
	{".config/git/credentials", nil},
	{".config/gh", nil},
	{".config/hub", nil},
	{".config/glab-cli", nil},
	{".config/github-copilot", nil},

	// databases and mail
	{".pgpass", nil},
	{".my.cnf", nil},
	{".mylogin.cnf", nil},
	{".msmtprc", nil},
	{".fetchmailrc", nil},
	{".thunderbird", nil},

	// agents' own
	{".claude/.credentials.json", nil},
	{".codex/auth.json", nil},
	{".gemini/oauth_creds.json", nil},

	// browser profiles
	{".mozilla", nil},
	{".config/chromium", nil},
	{".config/google-chrome", nil},
	{".config/BraveSoftware", nil},
	{".config/microsoft-edge", nil},
	{".config/vivaldi", nil},
	{".config/opera", nil},
	{"snap/firefox", nil},
	{"snap/chromium", nil},
	{".var/app/org.mozilla.firefox", nil},
	{".var/app/org.chromium.Chromium", nil},
	{".var/app/com.google.Chrome", nil},

	// what was typed, passwords among it
	{".bash_history", nil},
	{".zsh_history", nil},
	{".local/share/fish/fish_history", nil},
	{".local/share/atuin", nil},
	{".python_history", nil},
	{".node_repl_history", nil},
	{".psql_history", nil},
	{".mysql_history", nil},
	{".sqlite_history", nil},
	{".rediscli_history", nil},
	{".lesshst", nil},
	{".viminfo", nil},
}

// CredentialStores lists what is hidden in every profile, below the home directory.
func CredentialStores() []string {
	list := make([]string, len(credentialStores))
	for i, store := range credentialStores {
		list[i] = store.path
	}
	return list
}

// hiddenByDefault are the credential stores of a home.
func hiddenByDefault(home string) []HiddenPath {
	list := make([]HiddenPath, len(credentialStores))
	for i, store := range credentialStores {
		list[i] = HiddenPath{Path: filepath.Join(home, store.path), Keep: store.keep, Origin: Origin{OriginDefault, "hiddenPaths"}}
	}
	return list
}
