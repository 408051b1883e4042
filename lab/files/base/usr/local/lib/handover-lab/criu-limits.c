/* Copyright (c) 2026, the Handover maintainers
 * GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
 * SPDX-License-Identifier: GPL-3.0-or-later
 *
 * Lets CRIU read the resource limits of other users' processes on a machine
 * whose root has no CAP_SYS_RESOURCE, as in a sandbox: the kernel then refuses
 * prlimit for them, and no container could be dumped in which anybody but root
 * runs. /proc says the same to whoever may trace the process, and CRIU may.
 *
 * The kernel is asked first. Only where it has refused, and only a question
 * that changes nothing, is answered from /proc.
 *
 * Built on the machine and loaded in hosts of another Debian: no function in
 * here may be newer than the older one's C library.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* In the order of the kernel's numbers, which amd64 and arm64 share. */
static const char *const labels[] = {
	"Max cpu time", "Max file size", "Max data size", "Max stack size",
	"Max core file size", "Max resident set", "Max processes", "Max open files",
	"Max locked memory", "Max address space", "Max file locks", "Max pending signals",
	"Max msgqueue size", "Max nice priority", "Max realtime priority", "Max realtime timeout",
};

/* Reads "unlimited" or a number, and moves on behind it. */
static int read_number(const char **text, rlim_t *number)
{
	const char *at = *text + strspn(*text, " ");

	if (!strncmp(at, "unlimited", 9)) {
		*number = RLIM_INFINITY;
		*text = at + 9;
		return 1;
	}
	if (*at < '0' || *at > '9')
		return 0;
	for (*number = 0; *at >= '0' && *at <= '9'; at++)
		*number = *number * 10 + (*at - '0');
	*text = at;
	return 1;
}

static int read_limit(int pid, unsigned long resource, struct rlimit *limit)
{
	char path[32], line[256];
	int found = 0;

	if (resource >= sizeof(labels) / sizeof(labels[0]))
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/limits", pid);
	FILE *file = fopen(path, "re");
	if (!file)
		return 0;
	size_t length = strlen(labels[resource]);
	while (!found && fgets(line, sizeof(line), file)) {
		const char *text = line + length;
		found = !strncmp(line, labels[resource], length) &&
			read_number(&text, &limit->rlim_cur) && read_number(&text, &limit->rlim_max);
	}
	fclose(file);
	return found;
}

/* CRIU asks the kernel by number, through this function of the C library. */
long syscall(long call, ...)
{
	static long (*kernel)(long, ...);
	long word[6];
	va_list words;

	va_start(words, call);
	for (int i = 0; i < 6; i++)
		word[i] = va_arg(words, long);
	va_end(words);
	if (!kernel)
		kernel = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	long result = kernel(call, word[0], word[1], word[2], word[3], word[4], word[5]);
	if (call == SYS_prlimit64 && result < 0 && errno == EPERM && !word[2] && word[3] &&
	    read_limit(word[0], word[1], (struct rlimit *)word[3]))
		return 0;
	return result;
}
