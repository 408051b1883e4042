// Package lazy brings the memory over that CRIU leaves out of a dump and a restore: before
// the workload runs on the other side (Placer), or after that: lazy pages, or post-copy
// (Fetcher).
//
// A dump that CRIU makes with lazy-pages leaves the private anonymous pages where they
// are. CRIU would serve them itself when its post-dump script has agreed; but then it
// has released its hold on the tasks. Here only this package reads them: the tasks
// stand still until everything has arrived, so their memory can be read at any time
// and again (Memory), also by another process over another connection.
//
// CRIU restores such a dump by registering the memory with userfaultfd, and hands the
// descriptors over at a socket in its working directory, the ID of each task before its
// descriptor. The listener there answers: a Fetcher. It asks for touched pages at once,
// and for everything else when the restore is over. It follows the tasks' changes to
// their memory, by the kernel's events: unmap, move, throw away, fork.
//
// A page that is missing when the last descriptor of a userfaultfd is closed reads as
// zeroes. So the Fetcher gives each of them to a Keeper that outlives it (Keep), and
// releases it only when nothing is missing, or when the tasks have ended.
package lazy

// PageSize is the kernel's.
const PageSize = 4 << 10

const (
	// pieceSize is the most that is asked for at once, and faultSize when a task waits.
	pieceSize = 256 << 10
	faultSize = 64 << 10
	// mostQuestions may be under way when no task waits; a page that a task waits for
	// comes behind them.
	mostQuestions = 16
	// Where answers are small, since most of the memory has gone ahead, so many may be, if
	// their answers are about as many bytes: it is the way there and back that counts then.
	mostSmall = 256
	// mostUnsent is the number of unsent questions at which the reader is assumed to
	// be gone.
	mostUnsent = 1 << 14
)

// SocketName is where CRIU hands over userfaultfd descriptors, in its working directory.
const SocketName = "lazy-pages.socket"
