// Package lazy brings a workload's memory over after it runs on the other side: lazy
// pages, or post-copy.
//
// A dump that CRIU makes with lazy-pages leaves the private anonymous pages where they
// are. CRIU would serve them itself when its post-dump script has said go; but then it
// has let go of what holds the tasks. Here nobody but us reads them: the tasks stand
// still until everything has come, so their memory can be read at any time and again
// (Memory), also by another process over another connection.
//
// CRIU restores such a dump by registering the memory with userfaultfd, and hands the
// descriptors over at a socket in its working directory, the ID of each task before
// its descriptor. Whoever listens there answers: a Fetcher. It asks for what tasks touch
// at once, and for everything else when the restore is over. It follows what the tasks
// do to their memory meanwhile, as the kernel tells it: unmap, move, throw away, fork.
//
// A page that is missing when the last descriptor of a userfaultfd is closed reads as
// zeroes. So whoever listens gives each of them into somebody's keeping (Keep) who
// outlives him, and lets go of it only when nothing is missing, or when the tasks have
// ended.
package lazy

// PageSize is the kernel's.
const PageSize = 4 << 10

const (
	// pieceSize is the most that is asked for at once, and faultSize when a task waits.
	pieceSize = 256 << 10
	faultSize = 64 << 10
	// mostQuestions may be under way when no task waits; what one waits for comes
	// behind them.
	mostQuestions = 16
	// mostUnsent are so many questions that who should read them is taken for gone.
	mostUnsent = 1 << 14
)

// SocketName is where CRIU hands over userfaultfd descriptors, in its working directory.
const SocketName = "lazy-pages.socket"
