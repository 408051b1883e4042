package busy

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

func TestWhatOthersWantMakesItLonger(t *testing.T) {
	alone := measure(work, patience)
	var stop atomic.Bool
	defer stop.Store(true)
	// Threads of this process count as others do: eight for each processor.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(9 * runtime.NumCPU()))
	for range 8 * runtime.NumCPU() {
		go func() {
			for !stop.Load() {
			}
		}()
	}
	time.Sleep(20 * time.Millisecond)
	crowded := measure(4*work, 20*patience)
	// On a machine that is busy with other things the first figure is high already.
	if alone < 1 || crowded < 2 {
		t.Errorf("%.1f alone, and %.1f among others", alone, crowded)
	}
}

func TestPatienceEnds(t *testing.T) {
	began := time.Now()
	if factor := measure(time.Hour, 30*time.Millisecond); factor < 1 {
		t.Error(factor)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

func TestAMeterHasAFigureAtOnce(t *testing.T) {
	var m Meter
	if factor := m.Now(); factor != 1 {
		t.Error(factor)
	}
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		m.mu.Lock()
		measured := !m.at.IsZero()
		m.mu.Unlock()
		if measured {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it was never measured")
		}
	}
	if factor := m.Now(); factor < 1 {
		t.Error(factor)
	}
}
