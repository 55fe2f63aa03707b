package bus

import (
	"slices"
	"strings"
)

// A service is what a filtered bus lets through where one of the usual names is listed: calls to a
// few interfaces of a few objects.
//
// A name alone is no border. Whoever owns it answers at every object of his, and to whoever knows
// him under his other names: where the desktop's shell shows the notifications, as Cinnamon's does,
// a call to org.freedesktop.Notifications would reach its Eval. And the portals take the command
// for one of the caller's own programs, since it is the proxy that they see: most of what they ask
// people before they do it for a Flatpak, they would do for the command unasked.
type service struct {
	listed string // as it stands in sessionBusNames
	name   string
	path   string // of the objects; with "/*" also those below
	calls  []string
}

var services = []service{
	{"org.freedesktop.secrets", "org.freedesktop.secrets", "/org/freedesktop/secrets/*", []string{
		// Not gnome-keyring's own interface there, which takes and changes master passwords. Nor
		// what would turn the caller's other programs to a keyring of the command's
		// (CreateCollection, SetAlias), or take one away with all that is in it (Delete of a
		// collection).
		"org.freedesktop.Secret.Service.OpenSession", "org.freedesktop.Secret.Service.SearchItems",
		"org.freedesktop.Secret.Service.Unlock", "org.freedesktop.Secret.Service.Lock",
		"org.freedesktop.Secret.Service.GetSecrets", "org.freedesktop.Secret.Service.ReadAlias",
		"org.freedesktop.Secret.Collection.SearchItems", "org.freedesktop.Secret.Collection.CreateItem",
		"org.freedesktop.Secret.Item.*",
		"org.freedesktop.Secret.Session.*", "org.freedesktop.Secret.Prompt.*", "org.freedesktop.DBus.Properties.*",
	}},
	{"org.freedesktop.Notifications", "org.freedesktop.Notifications", "/org/freedesktop/Notifications", []string{
		// Not what some desktops have besides: KDE's Inhibit switches off all notifications, a
		// question to the person as well.
		"org.freedesktop.Notifications.Notify", "org.freedesktop.Notifications.CloseNotification",
		"org.freedesktop.Notifications.GetCapabilities", "org.freedesktop.Notifications.GetServerInformation",
		"org.freedesktop.DBus.Properties.Get", "org.freedesktop.DBus.Properties.GetAll",
	}},
	{"org.freedesktop.portal.*", "org.freedesktop.portal.Desktop", "/org/freedesktop/portal/desktop/*", []string{
		// What only tells something, or asks a person each time and tells the answer. Not, among
		// others:
		//
		//	Background        writes a command into the session's autostart
		//	DynamicLauncher   installs and starts programs
		//	Email, OpenURI    start the mail program, the browser, or what else opens a file, with what the command says
		//	Notification      makes a click an action of the program that the caller's terminal counts as
		//	RemoteDesktop     types and clicks; ScreenCast, Screenshot, Camera, Location and Usb look around
		//	NetworkMonitor    resolves names and connects for whoever has no network, and ProxyResolver likewise
		//	Trash             moves files away
		//	org.freedesktop.host.portal.Registry  lets the command be any program, with what that was allowed
		//
		// Nor other names: org.freedesktop.portal.Flatpak starts programs,
		// org.freedesktop.portal.Documents hands files to Flatpaks, org.freedesktop.portal.Tracker
		// tells what stands in files.
		"org.freedesktop.portal.Settings.*", "org.freedesktop.portal.FileChooser.*", "org.freedesktop.portal.MemoryMonitor.*",
		"org.freedesktop.portal.PowerProfileMonitor.*", "org.freedesktop.portal.Request.*",
		"org.freedesktop.DBus.Properties.Get", "org.freedesktop.DBus.Properties.GetAll",
	}},
}

// rules are the options of xdg-dbus-proxy for a listed name: the usual ones in part, others with
// all their owner does.
func rules(listed string) []string {
	at := slices.IndexFunc(services, func(s service) bool { return s.listed == listed })
	if at < 0 {
		return []string{"--talk=" + listed}
	}
	s := services[at]
	var rules []string
	for _, call := range append([]string{"org.freedesktop.DBus.Introspectable.Introspect", "org.freedesktop.DBus.Peer.Ping"}, s.calls...) {
		rules = append(rules, "--call="+s.name+"="+call+"@"+s.path)
	}
	for _, face := range s.interfaces() {
		rules = append(rules, "--broadcast="+s.name+"="+face+".*@"+s.path) // the signals
	}
	return rules
}

// interfaces are those of which something may be called, each once.
func (s service) interfaces() []string {
	list := []string{"org.freedesktop.DBus.Properties"}
	for _, call := range s.calls {
		face := call[:strings.LastIndexByte(call, '.')]
		if !slices.Contains(list, face) {
			list = append(list, face)
		}
	}
	return list
}

// waysOut are services that start any program for whoever asks, or could be made to: the best known
// of them.
var waysOut = []string{
	"org.freedesktop.systemd1", "org.freedesktop.Flatpak", "org.freedesktop.portal.Desktop", "org.freedesktop.portal.Flatpak",
	"org.gnome.Shell", "org.gnome.Terminal", "org.Cinnamon", "org.kde.klauncher5", "org.kde.plasmashell", "org.kde.krunner",
	"org.kde.konsole", "org.kde.yakuake", "org.xfce.Terminal5",
}

func StartsPrograms(name string) bool {
	if slices.ContainsFunc(services, func(s service) bool { return s.listed == name }) {
		return false // in part, without those
	}
	below, wild := strings.CutSuffix(name, "*")
	return slices.ContainsFunc(waysOut, func(out string) bool {
		return name == out || wild && strings.HasPrefix(out+".", below)
	})
}

// IsName reports whether text is a well-known name by the D-Bus specification ("Bus names").
func IsName(text string) bool {
	words := strings.Split(text, ".")
	for _, word := range words {
		if !isWord(word) || word[0] >= '0' && word[0] <= '9' {
			return false
		}
	}
	return len(words) > 1 && len(text) <= 255
}
