package transport

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The files of a saved identity.
const (
	keyFile  = "session.key"
	certFile = "session.crt"
)

// Identity is this side's identity for one session: a key and the certificate that it
// signed for itself. The certificate's names and dates mean nothing; the other side
// knows it by its fingerprint.
type Identity struct {
	cert        tls.Certificate
	fingerprint string
}

// NewIdentity makes a key and a certificate, in memory.
func NewIdentity() (*Identity, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("transport: making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("transport: making a certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial.Add(serial, big.NewInt(1)),
		Subject:      pkix.Name{CommonName: "handover session"},
		// Hosts' clocks differ. The pin decides, not the date; these two are X.509's
		// way to say "no date".
		NotBefore:   time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:    time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return nil, fmt.Errorf("transport: making a certificate: %w", err)
	}
	return &Identity{
		cert:        tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private},
		fingerprint: fingerprint(der),
	}, nil
}

// Fingerprint is "sha256:" and the SHA-256 of the certificate, in hexadecimal.
func (id *Identity) Fingerprint() string { return id.fingerprint }

func fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// CheckFingerprint says why a text is no fingerprint, or nil if it is one.
func CheckFingerprint(s string) error {
	digits, ok := strings.CutPrefix(s, "sha256:")
	if b, err := hex.DecodeString(digits); !ok || err != nil || len(b) != sha256.Size || strings.ToLower(digits) != digits {
		return fmt.Errorf("transport: %q is no fingerprint: it is \"sha256:\" and 64 hexadecimal digits in lower case", s)
	}
	return nil
}

// Save writes the identity into dir, readable by its owner alone. It never
// replaces one that is there.
func (id *Identity) Save(dir string) error {
	key, err := x509.MarshalPKCS8PrivateKey(id.cert.PrivateKey)
	if err != nil {
		return fmt.Errorf("transport: %s: writing the key down: %w", dir, err)
	}
	for _, f := range []struct {
		name, kind string
		der        []byte
	}{{certFile, "CERTIFICATE", id.cert.Certificate[0]}, {keyFile, "PRIVATE KEY", key}} {
		if err := saveFile(filepath.Join(dir, f.name), pem.EncodeToMemory(&pem.Block{Type: f.kind, Bytes: f.der})); err != nil {
			return err
		}
	}
	return nil
}

func saveFile(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("transport: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		os.Remove(path) // half a key is worse than none
		return fmt.Errorf("transport: %w", err)
	}
	return nil
}

// Load reads the identity that Save wrote into dir. A key that others can read
// is refused: it may be theirs by now.
func Load(dir string) (*Identity, error) {
	path := filepath.Join(dir, keyFile)
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return nil, fmt.Errorf("transport: %s: mode %04o lets others read the key: remove it and make a new one", path, mode)
	}
	keyPEM, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	certPEM, err := os.ReadFile(filepath.Join(dir, certFile))
	if err != nil {
		return nil, fmt.Errorf("transport: %w", err)
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("transport: %s: the key and the certificate are no pair: %w", dir, err)
	}
	return &Identity{cert: cert, fingerprint: fingerprint(cert.Certificate[0])}, nil
}

// errNoCertificate cannot happen with ClientAuth as it is set; if it ever does,
// the answer is no.
var errNoCertificate = errors.New("the other side showed no certificate")

// config is the TLS configuration of one connection. want is asked during the
// handshake, when the other side's fingerprint must be known.
func (id *Identity) config(want func() string) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		MaxVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{id.cert},
		ClientAuth:   tls.RequireAnyClientCert,
		// A resumed session would skip the certificates; there is one
		// connection per session and nothing to resume.
		SessionTicketsDisabled: true,
		// Small records are for a reader that shows partial data.
		DynamicRecordSizingDisabled: true,
		// There is no authority, and no name, to check a session's certificate
		// against, so the library's own check is off. VerifyConnection takes
		// its place: it runs on every handshake, on both sides, and lets through
		// exactly one certificate. That the peer has that certificate's key is
		// proved by TLS itself and does not depend on this switch.
		InsecureSkipVerify: true, //nolint:gosec // see above
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) == 0 {
				return errNoCertificate
			}
			expected := want()
			if err := CheckFingerprint(expected); err != nil {
				return err
			}
			if got := fingerprint(state.PeerCertificates[0].Raw); got != expected {
				return &PeerError{Got: got, Want: expected}
			}
			return nil
		},
	}
}

// PeerError says that the peer is not the other side of this session.
type PeerError struct{ Got, Want string }

func (e *PeerError) Error() string {
	return fmt.Sprintf("the other side shows the key %s, and this session's is %s: it is another host, another session, or someone in between", e.Got, e.Want)
}
