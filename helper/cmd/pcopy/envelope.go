package main

import (
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"regexp"

	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/envelope"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// The longest content of an envelope, far more than all the secrets of a container.
const maxEnvelope = 64 << 20

var envelopeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,63}$`)

// envelope are the words by which the controller has something sent from host to host
// that it is not to see: the reading host offers, the sending one seals, the first opens.
func (a *app) envelope() *cobra.Command {
	offer := &cobra.Command{Use: "offer SESSION", Short: "Make the key of one envelope, and tell its public half", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		path, err := envelopeKey(args[0])
		if err != nil {
			return err
		}
		public, err := envelope.Offer(path)
		if err != nil {
			return err
		}
		return a.print(map[string]string{"key": public})
	}}
	seal := &cobra.Command{Use: "seal SESSION KEY", Short: "Close an envelope about what standard input says", Args: between(2, 2), RunE: func(_ *cobra.Command, args []string) error {
		plain, err := io.ReadAll(io.LimitReader(os.Stdin, maxEnvelope))
		if err != nil {
			return err
		}
		sealed, err := envelope.Seal(args[1], args[0], plain)
		if err != nil {
			return err
		}
		return a.print(map[string]string{"sealed": sealed})
	}}
	open := &cobra.Command{Use: "open SESSION", Short: "Open the envelope on standard input, once", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		path, err := envelopeKey(args[0])
		if err != nil {
			return err
		}
		sealed, err := io.ReadAll(io.LimitReader(os.Stdin, 2*maxEnvelope))
		if err != nil {
			return err
		}
		plain, err := envelope.Open(path, args[0], string(sealed))
		if err != nil {
			return err
		}
		return a.print(map[string]string{"base64": base64.StdEncoding.EncodeToString(plain)})
	}}
	forget := &cobra.Command{Use: "forget SESSION", Short: "End the key of an envelope that does not come", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		path, err := envelopeKey(args[0])
		if err != nil {
			return err
		}
		return envelope.Forget(path)
	}}
	return group("envelope", "Send a few bytes that only the other host can read", offer, seal, open, forget)
}

// envelopeKey is the place of a session's key: in memory, and gone with the next boot.
func envelopeKey(name string) (string, error) {
	if !envelopeName.MatchString(name) {
		return "", usageError("envelope: the name of a session is small letters, digits and dashes")
	}
	return filepath.Join(record.RunDir, "envelopes", name+".key"), nil
}
