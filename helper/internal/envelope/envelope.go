// Package envelope closes a few bytes so that one host alone can open them, once.
//
// The host that is to read them makes a key (Offer) and tells its public half. A
// holder of that half closes an envelope (Seal): with a key pair made for this one
// envelope both sides come to one secret (X25519), from which HKDF-SHA256 makes the
// key of AES-256-GCM. The envelope holds the public half of its pair and the
// ciphertext. Its label is authenticated: an envelope for one purpose cannot be
// opened for another. Opening ends the key (Open), whether it opens or not.
//
//	base64( public half, 32 bytes | ciphertext | tag, 16 bytes )
//
// The nonce is zero: no key encrypts twice.
package envelope

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	purpose   = "livefleet.handover envelope 1"
	publicLen = 32
	keyLen    = 32
)

// Offer makes a key, keeps it at path and returns its public half in hexadecimal. One
// that was there is forgotten.
func Offer(path string) (string, error) {
	key, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("envelope: making a key: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fmt.Errorf("envelope: %w", err)
	}
	if err := Forget(path); err != nil {
		return "", err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("envelope: %w", err)
	}
	_, err = f.Write(key.Bytes())
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("envelope: %w", err)
	}
	return hex.EncodeToString(key.PublicKey().Bytes()), nil
}

// Forget ends a key that nothing is to be opened with any more.
func Forget(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("envelope: %w", err)
	}
	return nil
}

// Seal closes plain for the host whose key has this public half.
func Seal(public, label string, plain []byte) (string, error) {
	b, err := hex.DecodeString(public)
	if err != nil {
		return "", fmt.Errorf("envelope: %q is no public key: give the one that the other host has told", public)
	}
	theirs, err := ecdh.X25519().NewPublicKey(b)
	if err != nil {
		return "", fmt.Errorf("envelope: %q is no public key: give the one that the other host has told", public)
	}
	ours, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return "", fmt.Errorf("envelope: making a key: %w", err)
	}
	box, err := between(ours, theirs, ours.PublicKey(), theirs)
	if err != nil {
		return "", err
	}
	sealed := box.Seal(ours.PublicKey().Bytes(), make([]byte, box.NonceSize()), plain, []byte(label))
	return base64.StdEncoding.EncodeToString(sealed), nil
}

// Open opens an envelope with the key at path, which ends with it.
func Open(path, label, sealed string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("envelope: this host has no key for it: it was opened already, or the host was restarted since; ask for a new one")
	} else if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	if err := Forget(path); err != nil {
		return nil, err
	}
	ours, err := ecdh.X25519().NewPrivateKey(b)
	if err != nil {
		return nil, fmt.Errorf("envelope: the key in %s is damaged: %w", path, err)
	}
	b, err = base64.StdEncoding.DecodeString(sealed)
	if err != nil || len(b) < publicLen {
		return nil, errors.New("envelope: it is damaged: send it again")
	}
	theirs, err := ecdh.X25519().NewPublicKey(b[:publicLen])
	if err != nil {
		return nil, errors.New("envelope: it is damaged: send it again")
	}
	box, err := between(ours, theirs, theirs, ours.PublicKey())
	if err != nil {
		return nil, err
	}
	plain, err := box.Open(nil, make([]byte, box.NonceSize()), b[publicLen:], []byte(label))
	if err != nil {
		return nil, errors.New("envelope: it was closed for another host or another purpose, or was changed on the way: send it again")
	}
	return plain, nil
}

// between is the cipher of one envelope, by the halves of its sender and its reader.
func between(private *ecdh.PrivateKey, public, sender, reader *ecdh.PublicKey) (cipher.AEAD, error) {
	shared, err := private.ECDH(public)
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	salt := append(sender.Bytes(), reader.Bytes()...)
	key, err := hkdf.Key(sha256.New, shared, salt, purpose, keyLen)
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("envelope: %w", err)
	}
	return cipher.NewGCM(block)
}
