package engine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/livefleet/handover/helper/internal/hooks"
	"github.com/livefleet/handover/helper/internal/session/record"
)

// apart starts a process in namespaces of its own, which first does something there.
func apart(t *testing.T, first string) (pid string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root: namespaces")
	}
	ready := filepath.Join(t.TempDir(), "ready")
	p := exec.Command("unshare", "--ipc", "--uts", "--net", "sh", "-c", first+"; touch "+ready+"; exec sleep 1000")
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait() })
	for range 1000 {
		if _, err := os.Stat(ready); err == nil {
			return strconv.Itoa(p.Process.Pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("it does not begin")
	return ""
}

func inNamespace(pid, kind string) string { return filepath.Join("/proc", pid, "ns", kind) }

// CRIU restores nothing of a namespace that a member joins.
func TestObjectsInACommonNamespaceKeepTheMembersHere(t *testing.T) {
	for first, says := range map[string]string{
		"true":                              "",
		"ipcmk --semaphore 1":               "semaphores of System V",
		"ipcmk --shmem 4096; ipcmk --queue": "message queues of System V, shared memory of System V",
	} {
		pid := apart(t, first)
		spec := &record.Spec{Members: []record.Member{
			{Name: "db", Freeze: &hooks.Command{}, Joins: map[string]string{"ipc": inNamespace(pid, "ipc")}},
			{Name: "web", Freeze: &hooks.Command{}, Joins: map[string]string{"ipc": inNamespace(pid, "ipc")}},
		}}
		err := nothingInCommon(spec)
		if says == "" && err != nil || says != "" && (err == nil || !strings.Contains(err.Error(), "does not restore what is in it ("+says+")")) {
			t.Errorf("%s: %v", first, err)
		}
		for i := range spec.Members { // CRIU carries a member's own
			spec.Members[i].Joins = nil
		}
		if err := nothingInCommon(spec); err != nil {
			t.Error(err)
		}
	}
}

// restored is a member whose first process CRIU has told.
func restored(t *testing.T, pid string, part record.Member, namespace string) *criuRestore {
	t.Helper()
	run, images := t.TempDir(), t.TempDir()
	gate, err := hooks.OpenGate(run, images, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gate.Refuse(); _ = gate.Close() })
	reg, err := hooks.Lookup(run, images)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = reg.Ask(hooks.PostRestore, pid) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	wait := &hooks.Command{Argv: []string{"sleep", "60"}}
	p, err := wait.Start()
	if err == nil {
		_, err = gate.Await(ctx, hooks.PostRestore, p)
	}
	if err != nil {
		t.Fatal(err)
	}
	part.Restore = &hooks.Command{Gate: images}
	return &criuRestore{
		Session: &record.Session{Spec: &record.Spec{Network: record.Network{Namespace: namespace}}}, Carried: &Carried{},
		h: record.Hooks{Restore: part.Restore}, part: part, gate: gate,
	}
}

func TestARestoredMemberIsWhereTheOthersAre(t *testing.T) {
	infra, alone := apart(t, "hostname pod"), apart(t, "hostname other")
	for _, kind := range []string{"ipc", "uts", "net"} {
		part, namespace := record.Member{Name: "web", Joins: map[string]string{kind: inNamespace(infra, kind)}}, ""
		if kind == "net" {
			part.Joins, namespace = nil, inNamespace(infra, kind)
		}
		err := restored(t, alone, part, namespace).hasJoined()
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("web was restored into another namespace (%s) than the other members", kind)) {
			t.Errorf("%s: %v", kind, err)
		}
	}
}

// The name that the members had last is not that with which the pod was made here.
func TestACommonHostNameIsCarried(t *testing.T) {
	source, destination := apart(t, "hostname changed"), apart(t, "hostname as-made")
	part := record.Member{Name: "web", Joins: map[string]string{"uts": inNamespace(source, "uts")}}
	r := restored(t, destination, record.Member{Name: "web", Joins: map[string]string{"uts": inNamespace(destination, "uts")}}, "")
	if err := WriteNames(part, r.h.Restore.Gate); err != nil {
		t.Fatal(err)
	}
	if err := r.hasJoined(); err != nil {
		t.Fatal(err)
	}
	if now, err := namesIn(inNamespace(destination, "uts")); err != nil || now.Host != "changed" {
		t.Errorf("%+v, %v", now, err)
	}
}

// Threads of several members have the same numbers: each member's are with its own dump.
func TestBoundThreadsOfAMemberAreBesideItsDump(t *testing.T) {
	r := restored(t, strconv.Itoa(os.Getpid()), record.Member{Name: "web"}, "")
	if err := os.WriteFile(filepath.Join(r.h.Restore.Gate, boundFile), []byte(`{"7": [0]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.readBound(); err != nil || len(r.threads[7]) != 1 {
		t.Errorf("%v, %v", r.threads, err)
	}
}
