package ownnet

import (
	"strings"
	"testing"
)

// As nft lists it in a container of Docker 26.1 on a network of the user's.
const listed = `table ip nat {
	chain DOCKER_OUTPUT {
		ip daddr 127.0.0.11 tcp dport 53 counter packets 0 bytes 0 dnat to 127.0.0.11:37367
		ip daddr 127.0.0.11 udp dport 53 counter packets 0 bytes 0 dnat to 127.0.0.11:35759
	}

	chain OUTPUT {
		type nat hook output priority dstnat; policy accept;
		ip daddr 127.0.0.11 counter packets 0 bytes 0 jump DOCKER_OUTPUT
	}

	chain DOCKER_POSTROUTING {
		ip saddr 127.0.0.11 tcp sport 37367 counter packets 0 bytes 0 snat to :53
		ip saddr 127.0.0.11 udp sport 35759 counter packets 0 bytes 0 snat to :53
	}

	chain POSTROUTING {
		type nat hook postrouting priority srcnat; policy accept;
		ip daddr 127.0.0.11 counter packets 0 bytes 0 jump DOCKER_POSTROUTING
	}
}
`

// A rule of the container's own beside Docker's is not left behind in silence.
func TestDockersResolverIsNobodysOwn(t *testing.T) {
	if !ofResolver(listed) {
		t.Error("Docker's own table is taken for the container's")
	}
	for _, rule := range []string{"ip daddr 192.0.2.1 counter packets 0 bytes 0 dnat to 192.0.2.2:80", "ip daddr 127.0.0.11 drop", "oifname \"eth0\" masquerade"} {
		if ofResolver(strings.Replace(listed, "\t\tip saddr", "\t\t"+rule+"\n\t\tip saddr", 1)) {
			t.Errorf("the rule %q would be left behind", rule)
		}
	}
	if ofResolver("table ip nat {\n}\n") {
		t.Error("a table without a rule of Docker's is none of Docker's")
	}
}
