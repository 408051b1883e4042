/*
 * The handover as a model for spin: two hosts, a network, a controller, an
 * operator, and everything that may go wrong with them.
 *
 * The states, and which may follow which, are those of the code
 * (helper/internal/session/record/journal.go); a test holds the two tables against each
 * other. Every guarded step below is one thing that one party does by itself,
 * and any other party, or a fault, may come between two of them.
 *
 * What may happen, and how often (the limits are defined below):
 *   - a session's process is killed, on either side, at any point: its records
 *     stay, synced or not, and CRIU's hook goes on by itself;
 *   - a host loses its power, at any point: tasks and memory are gone, records
 *     that were not synced may be gone or not, and so may what was received;
 *   - a host comes back, or never does;
 *   - a message is lost, comes late, or comes again;
 *   - every wait that has a time limit may come to it, at any point: time is not
 *     in the model, so no length of a limit is relied upon;
 *   - the restore fails, before the run token and after it;
 *   - the controller aborts, dies, looks, and acts upon what it saw some time
 *     ago; several of them at once are no different;
 *   - somebody starts the workload by hand, or a restart policy does, wherever
 *     the host lets him;
 *   - the operator has a host fenced that the controller cannot reach, though it
 *     may be up and run the workload, and the host is switched on again later.
 *
 * What must hold:
 *   never twice   the workload never runs on both hosts (NEVER_TWICE)
 *   never empty   it never runs where its volumes are not mounted (NEVER_EMPTY); at
 *                 a boot they are mounted at any point, before or after the recovery
 *                 and whatever starts containers
 *   never lost    at least one host holds all that was ever acknowledged
 *                 (NEVER_LOST); and as long as no host lost its power, its memory
 *                 too (MEMORY_NEVER_LOST)
 *   a way out     no run goes round for ever (no cycle in the state space but
 *                 waiting), and where nothing more happens, the session has ended on
 *                 both sides and exactly one of them may run it (WELL_ENDED)
 *
 * What an operator throws away on purpose is not lost: fencing a destination that
 * ran ends the promise for what was acknowledged there after the release.
 *
 * Build with -DBREAK_… to break one rule on purpose: spin then has to find out.
 */

#ifndef KILLS
#define KILLS 1      /* of a session's process, both sides together */
#endif
#ifndef POWER_CUTS
#define POWER_CUTS 2 /* of a host, both sides together */
#endif
#ifndef LOSSES
#define LOSSES 1     /* of a message */
#endif
#ifndef REPEATS
#define REPEATS 1    /* of a message */
#endif
#ifndef FENCINGS
#define FENCINGS 1
#endif

/* ---------------------------------------------------------------- the states */

mtype = {
	prepare, presync, barrier, frozen, flushed, prepared, released, resumed,
	refused, settled, done, thawed, discarded, failed, in_doubt, fenced
}

/* What may follow what; the code refuses everything else. */
#define SOURCE_NEXT(a, b) ( \
	(a == prepare && (b == presync || b == failed)) || \
	(a == presync && (b == barrier || b == failed)) || \
	(a == barrier && (b == frozen || b == thawed || b == failed)) || \
	(a == frozen && (b == flushed || b == thawed)) || \
	(a == flushed && (b == prepared || b == thawed)) || \
	(a == prepared && (b == released || b == thawed)) || \
	(a == released && (b == resumed || b == refused || b == in_doubt)) || \
	(a == in_doubt && (b == resumed || b == refused || b == fenced)) || \
	(a == resumed && (b == settled || b == fenced)) || \
	(a == refused && (b == thawed)) || \
	(a == fenced && (b == thawed)) || \
	(a == settled && (b == done)) )
#define DESTINATION_NEXT(a, b) ( \
	(a == prepare && (b == presync || b == discarded)) || \
	(a == presync && (b == barrier || b == discarded)) || \
	(a == barrier && (b == frozen || b == discarded)) || \
	(a == frozen && (b == flushed || b == discarded)) || \
	(a == flushed && (b == prepared || b == refused)) || \
	(a == prepared && (b == released || b == refused)) || \
	(a == released && (b == resumed || b == in_doubt)) || \
	(a == in_doubt && (b == resumed || b == refused || b == fenced)) || \
	(a == resumed && (b == settled || b == fenced)) || \
	(a == refused && (b == discarded)) || \
	(a == fenced && (b == discarded)) || \
	(a == settled && (b == done || b == fenced)) )

/* The records that are synced before anything that rests on them. */
#define DURABLE(a) (a == released || a == resumed || a == refused || a == settled || a == done || \
	a == thawed || a == discarded || a == failed || a == in_doubt || a == fenced)

#define BEFORE_FROZEN(a) (a == prepare || a == presync || a == barrier)
#define BEFORE_FLUSHED(a) (BEFORE_FROZEN(a) || a == frozen)
#define BEFORE_RELEASED(a) (BEFORE_FLUSHED(a) || a == flushed || a == prepared)

/* --------------------------------------------------------------- the two hosts */

/* Where the tasks of the workload are on a host. */
mtype = { none, runs, held }

/* journal: the last record, as everyone on the host reads it, and as the disk has it */
mtype s_at = prepare, s_disk = prepare;
mtype d_at = prepare, d_disk = prepare;

mtype s_tasks = runs, d_tasks = none;

/* Live: CRIU holds the tasks, with their memory. Offline: they are stopped here and started there. */
#ifdef OFFLINE
#define STOPPED none
#define RESTORED none
#else
#define STOPPED held
#define RESTORED held
#endif

bool s_up = true, d_up = true;           /* the host */
bool s_serves = true, d_serves = true;   /* the session's process */
bool s_dead = false, d_dead = false;     /* the host will never come back */
bool s_mounted = true, d_mounted = true; /* the volumes are in place: inplace.go */
bool d_booted = false;                   /* since the last record was made */
bool d_restarted = false;                /* since the session began */

bool s_frozen = false;                   /* the source was frozen once: its data are as they were then */
bool s_quits = false, d_quits = false;   /* the process has decided to give up */
bool s_sent = false;                     /* the process has sent the run token */
bool d_ran = false;                      /* CRIU was told to go on: it may have run */
bool d_told = false;                     /* the process has told the outcome */

/* The data. Whoever runs acknowledges; all others have less from then on. */
bool s_all = true;                       /* the source's disk has all that was acknowledged */
bool d_all = false, d_all_disk = false;  /* the destination has it, and has it on its disk */
bool stale = false;                      /* something was acknowledged on the source after it was frozen */
bool given_up = false;                   /* the operator gave up what the destination had acknowledged */
bool power_lost = false;                 /* a host lost its power: memory may be gone */
bool cleaned = false;                    /* the source's container and volumes are removed */

/* What the faults have left. */
byte kills = KILLS, cuts = POWER_CUTS, losses = LOSSES, repeats = REPEATS, fencings = FENCINGS;

/* ----------------------------------------------------------------- the network */

mtype = { m_flushed, m_run, m_fail, m_end, m_prepared, m_resumed, m_refused, m_settled }

chan to_d = [2] of { mtype };
chan to_s = [2] of { mtype };

/* A message is sent, or lost on the way; it never waits for the other side. */
inline put(c, m) {
	if
	:: nfull(c) -> c!m
	:: losses > 0 -> losses--
	:: full(c)
	fi
}

/* A message that was looked at is taken, or comes again later. */
inline take(c, m) {
	if
	:: c?m
	:: repeats > 0 -> repeats--
	fi
}

/* ------------------------------------------------------------- what must hold */

#define NEVER_TWICE !(s_tasks == runs && d_tasks == runs)
#define NEVER_EMPTY !(s_tasks == runs && !s_mounted || d_tasks == runs && !d_mounted)
#define NEVER_LOST (s_all || d_all)
#ifdef OFFLINE
#define MEMORY_NEVER_LOST true
#else
#define MEMORY_NEVER_LOST (power_lost || s_tasks != none || d_tasks != none)
#endif

inline check() {
	assert(NEVER_TWICE);
	assert(NEVER_EMPTY);
	assert(NEVER_LOST);
	assert(MEMORY_NEVER_LOST)
}

/* Nothing starts on the folder under a volume: the hook, the recovery and the session's process look. */
#ifdef BREAK_START_WITHOUT_VOLUME
#define S_IN_PLACE true
#define D_IN_PLACE true
#else
#define S_IN_PLACE s_mounted
#define D_IN_PLACE d_mounted
#endif

/* What the host lets start: pcopy's hook stands before every start of a container, and asks the
 * session's process if there is one, else the journal. Who reads a journal puts it on the disk
 * first: a fencing that a power cut undoes has let nothing start. */
#define S_GOES_ON ((s_at == refused || s_at == fenced) && S_SYNCED)
#if defined BREAK_START_IN_DOUBT
#define S_MAY_START true
#elif defined BREAK_START_WHILE_STOPPED
#define S_MAY_START (BEFORE_RELEASED(s_at) || S_GOES_ON || s_at == thawed || s_at == failed)
#else
#define S_MAY_START ((BEFORE_RELEASED(s_at) || S_GOES_ON) && (!s_serves || s_quits) || s_at == thawed || s_at == failed)
#endif
#ifdef BREAK_START_AFTER_BOOT
#define D_MAY_START (d_at == resumed || d_at == settled || d_at == done)
#else
#define D_MAY_START (d_at == done || !d_restarted && (d_at == resumed || d_at == settled))
#endif

#define S_ENDED (s_at == thawed || s_at == failed || s_at == done)
#define D_ENDED (d_at == discarded || d_at == done)

/* Either the source runs it, or would if its host came back, and the destination
 * has nothing of it; or the other way round. */
#define STAYED ((s_at == thawed || s_at == failed) && !cleaned && (s_tasks == runs || s_dead) && d_tasks == none && (d_at == discarded || d_dead))
#define MOVED ((d_at == done && d_tasks == runs || (d_at == done || d_at == settled) && d_dead) && s_tasks == none && (s_at == done || s_dead))
/* The source's host is gone for ever, and the destination had nothing yet. */
#define GONE_WITH_ITS_HOST (s_dead && d_tasks == none && d_at == discarded || s_dead && d_dead)
#define WELL_ENDED (STAYED || MOVED || GONE_WITH_ITS_HOST)

/* ------------------------------------------------------------------ the journal */

#define S_SYNCED (!DURABLE(s_at) || s_disk == s_at)
#define D_SYNCED (!DURABLE(d_at) || d_disk == d_at)

inline s_record(x) { assert(SOURCE_NEXT(s_at, x)); s_at = x }
inline d_record(x) { assert(DESTINATION_NEXT(d_at, x)); d_at = x; d_booted = false }

/* ------------------------------------------------------------------- the source */

#define S_ACTS (s_up && s_serves && S_SYNCED && !s_quits)

/* source.go: what the session's process does */
active proctype Source()
{
end:
	do
	:: atomic { s_up && s_serves && !S_SYNCED -> s_disk = s_at }

	:: atomic { S_ACTS && s_at == prepare -> s_record(presync) }
	:: atomic { S_ACTS && s_at == presync -> s_record(barrier) }
	:: atomic { S_ACTS && s_at == barrier && s_tasks == runs -> s_tasks = STOPPED; s_frozen = true }
	:: atomic { S_ACTS && s_at == barrier && s_tasks == STOPPED -> s_record(frozen) }
	:: atomic { S_ACTS && s_at == frozen -> put(to_d, m_flushed); s_record(flushed) }
	:: atomic { S_ACTS && s_at == flushed && to_s?[m_prepared] -> take(to_s, m_prepared); s_record(prepared) }
#ifdef BREAK_TOKEN_BEFORE_RELEASE
	:: atomic { S_ACTS && s_at == prepared && !s_sent -> s_sent = true; put(to_d, m_run) }
	:: atomic { S_ACTS && s_at == prepared && s_sent -> s_record(released) }
#else
	:: atomic { S_ACTS && s_at == prepared -> s_record(released) }
#ifdef BREAK_TOKEN_BEFORE_SYNC
	:: atomic { s_up && s_serves && s_at == released && !s_sent -> s_sent = true; put(to_d, m_run) }
#else
	:: atomic { S_ACTS && s_at == released && !s_sent -> s_sent = true; put(to_d, m_run) }
#endif
#endif

	/* the outcome */
	:: atomic { S_ACTS && s_at == released && s_sent && to_s?[m_resumed] -> take(to_s, m_resumed); s_record(resumed) }
	:: atomic { S_ACTS && s_at == released && s_sent && to_s?[m_refused] -> take(to_s, m_refused); s_record(refused) }
	:: atomic { S_ACTS && s_at == released && s_sent -> s_record(in_doubt) } /* no answer in time, or no clear one */
	:: atomic { S_ACTS && s_at == resumed && to_s?[m_settled] -> take(to_s, m_settled); s_record(settled) }
#ifdef BREAK_THAW_IN_DOUBT
	:: atomic { S_ACTS && s_at == in_doubt && s_tasks == held -> s_tasks = runs; check() }
#endif
#ifdef BREAK_RECLAIM_WITHOUT_OUTCOME
	:: atomic { S_ACTS && s_at == released && s_sent && s_tasks == held -> s_tasks = none; check() }
#endif

	/* the end: refused, fenced or settled */
	:: atomic { S_ACTS && (s_at == refused || s_at == fenced) && s_tasks == held -> s_tasks = runs; check() }
	:: atomic { S_ACTS && (s_at == refused || s_at == fenced) && s_tasks != held -> s_record(thawed) }
	:: atomic { S_ACTS && s_at == settled && s_tasks == held -> s_tasks = none; check() }
	:: atomic { S_ACTS && s_at == settled && s_tasks == none -> put(to_d, m_end); s_record(done) }

	/* the way back, before the release: a time limit, an abort, a failure, the other side's word */
	:: atomic { S_ACTS && BEFORE_RELEASED(s_at) -> s_quits = true }
	:: atomic { s_up && s_serves && s_quits && s_tasks == STOPPED && BEFORE_RELEASED(s_at) -> s_tasks = runs; check() }
	:: atomic { s_up && s_serves && s_quits && s_tasks == runs && BEFORE_RELEASED(s_at) ->
		if :: s_frozen -> s_record(thawed) :: else -> s_record(failed) fi;
		put(to_d, m_fail)
	}

	/* messages that no step waits for any more */
	:: atomic { s_up && s_serves && S_SYNCED && nempty(to_s) && S_ENDED -> to_s?_ }
	:: atomic { s_up && s_serves && S_SYNCED && S_ENDED -> s_serves = false; s_quits = false }
	od
}

/* orphan.go: CRIU's hook holds the tasks, and asks the journal if nobody serves the session */
active proctype SourceHook()
{
#define S_ORPHAN (s_up && !s_serves && s_tasks == held)
#ifdef BREAK_HOOK_TRUSTS_UNSYNCED
#define S_HOOK_READS true
#else
#define S_HOOK_READS S_SYNCED
#endif
end:
	do
	:: atomic { S_ORPHAN && !S_SYNCED -> s_disk = s_at }
	:: atomic { S_ORPHAN && S_HOOK_READS && (BEFORE_RELEASED(s_at) || s_at == refused || s_at == fenced) -> s_record(thawed) }
	:: atomic { S_ORPHAN && S_HOOK_READS && (s_at == thawed || s_at == failed) -> s_tasks = runs; check() }
	:: atomic { S_ORPHAN && S_HOOK_READS && (s_at == settled || s_at == done) -> s_tasks = none; check() }
#ifdef BREAK_HOOK_LETS_GO_IN_DOUBT
	:: atomic { S_ORPHAN && S_HOOK_READS && (s_at == released || s_at == in_doubt) -> s_tasks = runs; check() }
#endif
	od
}

/* recover.go: what is done on the host when the process is gone, at once and after a boot */
active proctype SourceRecovery()
{
#define S_LEFT (s_up && !s_serves && S_SYNCED)
end:
	do
	:: atomic { s_up && !s_serves && !S_SYNCED -> s_disk = s_at }
#ifdef OFFLINE
	/* a workload that was stopped is started again */
	:: atomic { S_LEFT && BEFORE_RELEASED(s_at) && s_at != prepare && s_at != presync && S_IN_PLACE -> s_tasks = runs; s_record(thawed); check() }
	:: atomic { S_LEFT && (s_at == prepare || s_at == presync) -> s_record(failed) }
	:: atomic { S_LEFT && (s_at == refused || s_at == fenced) && S_IN_PLACE -> s_tasks = runs; s_record(thawed); check() }
#else
	:: atomic { S_LEFT && s_tasks != held && BEFORE_RELEASED(s_at) ->
		if :: s_at == prepare || s_at == presync -> s_record(failed) :: else -> s_record(thawed) fi
	}
	:: atomic { S_LEFT && s_tasks != held && (s_at == refused || s_at == fenced) -> s_record(thawed) }
#endif
	:: atomic { S_LEFT && s_at == released -> s_record(in_doubt) }
	:: atomic { S_LEFT && s_tasks != held && s_at == settled -> s_record(done) }
	od
}

/* -------------------------------------------------------------- the destination */

#define D_ACTS (d_up && d_serves && D_SYNCED && !d_quits)

/* What was received is removed. */
inline d_removes() { d_all = false; d_all_disk = false }

/* destination.go: what the session's process does */
active proctype Destination()
{
end:
	do
	:: atomic { d_up && d_serves && !D_SYNCED -> d_disk = d_at }

	:: atomic { D_ACTS && d_at == prepare -> d_record(presync) }
	:: atomic { D_ACTS && d_at == presync -> d_record(barrier) }
	:: atomic { D_ACTS && d_at == barrier && to_d?[m_flushed] -> d_record(frozen) }
	:: atomic { D_ACTS && d_at == frozen && to_d?[m_flushed] -> take(to_d, m_flushed); d_all = !stale; d_record(flushed) }
#ifndef BREAK_SYNC_AFTER_RESUME
	:: atomic { D_ACTS && d_at == flushed && d_all && !d_all_disk -> d_all_disk = true }
#define D_READY (d_all_disk || stale)
#else
#define D_READY true
	:: atomic { D_ACTS && d_at == resumed && !d_all_disk -> d_all_disk = d_all }
#endif
#ifdef BREAK_RESTORE_NOT_HELD
	:: atomic { D_ACTS && d_at == flushed && d_tasks == none && D_READY -> d_tasks = runs; d_ran = true; check() }
	:: atomic { D_ACTS && d_at == flushed && d_tasks == runs -> d_record(prepared); put(to_s, m_prepared) }
#else
	:: atomic { D_ACTS && d_at == flushed && d_tasks == none && RESTORED != none && D_READY -> d_tasks = RESTORED }
	:: atomic { D_ACTS && d_at == flushed && d_tasks == RESTORED && D_READY -> d_record(prepared); put(to_s, m_prepared) }
#endif
	:: atomic { D_ACTS && d_at == prepared && to_d?[m_run] -> take(to_d, m_run); d_record(released) }
#ifdef BREAK_RESUME_BEFORE_RECORD
	:: atomic { D_ACTS && d_at == prepared && d_tasks == RESTORED && to_d?[m_run] -> d_tasks = runs; d_ran = true; check() }
#endif
	:: atomic { D_ACTS && d_at == released && d_tasks == RESTORED -> d_tasks = runs; d_ran = true; assert(!stale); check() }
	/* CRIU, or the start, fails before it lets anything run: it leaves a mark when it gets further */
	:: atomic { D_ACTS && d_at == released && d_tasks == held -> d_tasks = none; check() }
	:: atomic { D_ACTS && d_at == released && d_tasks == none -> d_record(in_doubt) }
#ifdef BREAK_TOLD_BEFORE_SYNC
	:: atomic { D_ACTS && d_at == in_doubt && !d_ran -> d_record(refused); d_told = true; put(to_s, m_refused) }
#else
	:: atomic { D_ACTS && d_at == in_doubt && !d_ran -> d_record(refused) }
#endif
	:: atomic { D_ACTS && d_at == released && d_tasks == runs -> put(to_s, m_resumed); d_record(resumed) }
	:: atomic { D_ACTS && d_at == resumed && (D_READY || d_all_disk) -> d_record(settled) }
	:: atomic { D_ACTS && d_at == settled && !d_told -> d_told = true; put(to_s, m_settled) }
	:: atomic { D_ACTS && d_at == settled && to_d?[m_end] -> take(to_d, m_end); d_record(done) }

	/* the way back, before the token: a time limit, an abort, a failing restore, the source's word */
	:: atomic { D_ACTS && BEFORE_RELEASED(d_at) -> d_quits = true }
	:: atomic { d_up && d_serves && D_SYNCED && d_quits && BEFORE_FLUSHED(d_at) -> d_removes(); d_record(discarded); put(to_s, m_fail); check() }
#ifdef BREAK_REFUSE_WITHOUT_KILLING
	:: atomic { d_up && d_serves && D_SYNCED && d_quits && (d_at == flushed || d_at == prepared) -> d_record(refused); put(to_s, m_refused) }
	:: atomic { d_up && d_serves && d_at == refused && d_tasks == held -> d_tasks = runs; check() }
#else
	:: atomic { d_up && d_serves && D_SYNCED && d_quits && (d_at == flushed || d_at == prepared) && d_tasks == held -> d_tasks = none; check() }
	:: atomic { d_up && d_serves && D_SYNCED && d_quits && (d_at == flushed || d_at == prepared) && d_tasks == none -> d_record(refused) }
	:: atomic { d_up && d_serves && D_SYNCED && d_at == refused && !d_told -> d_told = true; put(to_s, m_refused) }
#endif
	:: atomic { d_up && d_serves && D_SYNCED && (d_at == refused && d_told || d_at == fenced) && d_tasks == none -> d_removes(); d_record(discarded); check() }

	/* no goodbye comes: the source may not know yet, and can still be told to thaw; the controller will say */
#ifdef BREAK_DONE_WITHOUT_GOODBYE
	:: atomic { D_ACTS && d_at == settled && d_told -> d_record(done) }
#endif
	:: atomic { D_ACTS && d_at == settled && d_told -> d_serves = false }
	:: atomic { d_up && d_serves && D_SYNCED && nempty(to_d) && (D_ENDED || d_at == released || d_at == resumed) && !to_d?[m_end] -> to_d?_ }
	:: atomic { d_up && d_serves && D_SYNCED && D_ENDED -> d_serves = false; d_quits = false }
	od
}

/* orphan.go: CRIU's hook holds the restored tasks */
active proctype DestinationHook()
{
#define D_ORPHAN (d_up && !d_serves && d_tasks == held)
#ifdef BREAK_HOOK_TRUSTS_UNSYNCED
#define D_HOOK_READS true
#else
#define D_HOOK_READS D_SYNCED
#endif
end:
	do
	:: atomic { D_ORPHAN && !D_SYNCED -> d_disk = d_at }
	:: atomic { D_ORPHAN && D_HOOK_READS && (d_at == flushed || d_at == prepared) -> d_record(refused) }
	:: atomic { D_ORPHAN && D_HOOK_READS && (d_at == refused || d_at == discarded || d_at == fenced) -> d_tasks = none; check() }
	:: atomic { D_ORPHAN && D_HOOK_READS && d_at == released -> d_tasks = runs; d_ran = true; assert(!stale); check() }
	:: atomic { D_ORPHAN && D_HOOK_READS && d_at == released -> d_tasks = none; check() } /* CRIU fails */
	od
}

/* recover.go */
active proctype DestinationRecovery()
{
#define D_LEFT (d_up && !d_serves && D_SYNCED)
end:
	do
	:: atomic { d_up && !d_serves && !D_SYNCED -> d_disk = d_at }
	:: atomic { D_LEFT && d_tasks == none && BEFORE_FLUSHED(d_at) -> d_removes(); d_record(discarded); check() }
	:: atomic { D_LEFT && d_tasks == none && (d_at == flushed || d_at == prepared) -> d_record(refused) }
	:: atomic { D_LEFT && d_tasks == none && (d_at == refused || d_at == fenced) -> d_removes(); d_record(discarded); check() }
	/* the token came: it runs, or it failed to, or the host was restarted and nobody knows: it is at home here */
	:: atomic { D_LEFT && d_at == released && (d_ran || d_booted) -> d_record(resumed) }
	:: atomic { D_LEFT && d_at == released && d_tasks == none && !d_ran && !d_booted -> d_record(in_doubt) }
	:: atomic { D_LEFT && d_at == in_doubt && (d_ran || d_booted) -> d_record(resumed) }
	:: atomic { D_LEFT && d_at == in_doubt && !d_ran && !d_booted -> d_record(refused) }
	:: atomic { D_LEFT && d_at == resumed -> d_all_disk = d_all; d_record(settled) }
	od
}

/* ------------------------------------------------------------------- no power */

/* Messages to a host that is off are lost. What was not synced may have been written all the same. */
inline drain(c) {
	do
	:: nempty(c) -> c?_
	:: empty(c) -> break
	od
}

inline s_power_off() {
	s_up = false; s_serves = false; s_quits = false; s_tasks = none; power_lost = true;
	if :: s_at = s_disk :: s_disk = s_at fi;
	drain(to_s); check()
}

inline d_power_off() {
	d_up = false; d_serves = false; d_quits = false; d_tasks = none; power_lost = true;
	if :: d_at = d_disk :: d_disk = d_at fi;
	if :: d_all = d_all_disk :: d_all_disk = d_all fi;
	drain(to_d); check()
}

/* ----------------------------------------------------- what runs acknowledges */

active proctype Workload()
{
end:
	do
	:: atomic { s_up && s_tasks == runs && (d_all || d_all_disk || (s_frozen && !stale)) ->
		if :: s_frozen -> stale = true :: else fi;
		d_all = false; d_all_disk = false; check()
	}
	:: atomic { d_up && d_tasks == runs && s_all -> s_all = false; check() }

	/* by hand, by a restart policy, at boot, or by the play: from the disk */
	:: atomic { s_up && s_tasks == none && !cleaned && S_IN_PLACE && S_MAY_START -> s_tasks = runs; check() }
	:: atomic { d_up && d_tasks == none && D_IN_PLACE && D_MAY_START -> d_tasks = runs; d_ran = true; check() }
	od
}

/* ------------------------------------------- the controller and the operator */

/* outcome.yml, recover.yml: asks one side, and tells the other what that said. What it saw may be old by then. */
active proctype Controller()
{
/* who shows a journal syncs it first: what was seen does not go away again */
#ifdef BREAK_SHOW_UNSYNCED
#define SHOWN(synced) true
#else
#define SHOWN(synced) (synced)
#endif
	mtype saw;
end:
	do
	/* the destination's word to a source that is held */
	:: atomic { d_up && s_up && S_SYNCED && SHOWN(D_SYNCED) && (s_at == in_doubt || s_at == resumed) && (d_at == settled || d_at == done || d_at == refused || d_at == discarded) -> saw = d_at };
		atomic {
			if
			:: s_up && s_at == in_doubt && (saw == settled || saw == done) -> s_record(resumed)
			:: s_up && s_at == in_doubt && (saw == refused || saw == discarded) -> s_record(refused)
			:: s_up && S_SYNCED && s_at == resumed && (saw == settled || saw == done) -> s_record(settled)
			:: else
			fi;
			saw = 0
		}
#ifdef BREAK_CONTROLLER_TAKES_PREPARED
	:: atomic { d_up && s_up && s_at == in_doubt && d_at == prepared -> s_record(refused) }
#endif
	/* the source's word to a destination that does not know whether the source can still thaw */
	:: atomic { s_up && d_up && SHOWN(S_SYNCED) && !d_serves && D_SYNCED && d_at == settled && (s_at == settled || s_at == done) -> d_record(done) }
	:: atomic { s_up && d_up && !d_serves && D_SYNCED && (d_at == settled || d_at == resumed || d_at == in_doubt) && SHOWN(S_SYNCED) && s_at == thawed && given_up ->
		d_tasks = none; d_record(fenced) }

	/* cleanup: the source's container and volumes go */
#ifdef BREAK_CLEANUP_BEFORE_SETTLED
	:: atomic { s_up && d_up && !cleaned && s_tasks == none && d_at == resumed -> cleaned = true; s_all = false; check() }
#endif
	:: atomic { s_up && d_up && !cleaned && s_at == done && d_at == done && S_SYNCED && D_SYNCED -> cleaned = true; s_all = false; check() }
	od
}

/* handover_fence: the host that cannot be reached is switched off, and the other one goes on without it */
active proctype Operator()
{
	bool d_fenced = false;
#ifdef BREAK_NO_WAY_OUT_OF_RESUMED
#define FORCE_RESUMED false
#else
#define FORCE_RESUMED s_at == resumed
#endif
end:
	do
	:: atomic { fencings > 0 && (s_at == in_doubt || s_at == resumed) && s_up -> fencings--;
#ifdef BREAK_FORCE_WITHOUT_FENCING
		d_fenced = true
#else
		if
		:: d_up -> d_power_off()
		:: else
		fi;
		d_fenced = true
#endif
	}
	/* by now it may be switched on again */
	:: atomic { d_fenced && s_up && S_SYNCED && (s_at == in_doubt || FORCE_RESUMED) -> given_up = true; assert(!cleaned); s_all = true; s_record(fenced); d_fenced = false }
	:: atomic { d_fenced && !(s_up && (s_at == in_doubt || s_at == resumed)) -> d_fenced = false }
	/* the other way round: a destination that waits for the word of a source that will never speak again */
	:: atomic { fencings > 0 && s_dead && d_up && !d_serves && D_SYNCED && d_at == settled -> fencings--; d_all = true; d_all_disk = true; d_record(done) }
	od
}

/* --------------------------------------------------------------------- faults */

active proctype Faults()
{
end:
	do
	:: atomic { kills > 0 && s_up && s_serves -> kills--; s_serves = false; s_quits = false }
	:: atomic { kills > 0 && d_up && d_serves -> kills--; d_serves = false; d_quits = false }
	:: atomic { cuts > 0 && s_up -> cuts--; s_power_off() }
	:: atomic { cuts > 0 && d_up -> cuts--; d_power_off() }
	:: atomic { !s_up && !s_dead -> s_up = true; s_mounted = false; drain(to_s) }
	:: atomic { !d_up && !d_dead -> d_up = true; d_mounted = false; d_booted = true; d_restarted = true; drain(to_d) }
	/* the volumes' units, in any order with all others */
	:: atomic { s_up && !s_mounted -> s_mounted = true }
	:: atomic { d_up && !d_mounted -> d_mounted = true }
	/* the hardest case first: it never comes back */
	:: atomic { !s_up && !s_dead && !d_dead && cuts == 0 && fencings > 0 -> s_dead = true }
	:: atomic { !d_up && !d_dead && !s_dead && cuts == 0 && fencings > 0 -> d_dead = true }
	od
}

/* ------------------------------------------------------------------- the end */

active proctype End()
{
	atomic { timeout -> assert(WELL_ENDED) }
}
