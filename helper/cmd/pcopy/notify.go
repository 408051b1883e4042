package main

import (
	"fmt"
	"net"
	"os"
)

// notifyReady tells a service manager that started this process with Type=notify that
// its work has begun. Without one there is nothing to do.
func notifyReady() error {
	socket := os.Getenv("NOTIFY_SOCKET")
	if socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("the service manager: %w", err)
	}
	defer c.Close()
	_, err = c.Write([]byte("READY=1"))
	return err
}
