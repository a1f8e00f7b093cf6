/* Walking an ELF symbol table (gabi, System V ABI, chapter 4). Everything in the file is checked before it is
 * followed: the file may have been replaced since we were started. */
#include "core/crash_names.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdalign.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

extern const char __ehdr_start[]; /* the linker's: the program's first byte in memory */

ddp_crash_names ddp_crash_names_open(void)
{
    ddp_crash_names names = {.base = (uintptr_t)__ehdr_start};
    struct stat info;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > (off_t)sizeof(ElfW(Ehdr))) {
        void *memory = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (memory != MAP_FAILED) {
            names.file = memory;
            names.bytes = (size_t)info.st_size;
        }
    }
    if (fd >= 0)
        close(fd);
    return names;
}

void ddp_crash_names_close(ddp_crash_names *names)
{
    if (names->file != NULL)
        munmap((void *)(uintptr_t)names->file, names->bytes);
    names->file = NULL;
}

static bool lies_inside(const ddp_crash_names *names, uint64_t at, uint64_t bytes)
{
    return at <= names->bytes && bytes <= names->bytes - at;
}

/* Section `index`, NULL = it is not (wholly) in the file. */
static const ElfW(Shdr) * find_section(const ddp_crash_names *names, unsigned index)
{
    const ElfW(Ehdr) *head = (const void *)names->file;
    uint64_t at = head->e_shoff + (uint64_t)index * sizeof(ElfW(Shdr));
    if (index >= head->e_shnum || head->e_shentsize != sizeof(ElfW(Shdr)) || at % alignof(ElfW(Shdr)) != 0 ||
        !lies_inside(names, at, sizeof(ElfW(Shdr))))
        return NULL;
    const ElfW(Shdr) *section = (const void *)(names->file + at);
    return lies_inside(names, section->sh_offset, section->sh_size) ? section : NULL;
}

static const char *find_in(const ddp_crash_names *names, const ElfW(Shdr) * table, uintptr_t value,
                           uintptr_t *offset)
{
    const ElfW(Shdr) *texts = find_section(names, table->sh_link);
    const ElfW(Sym) *symbols = (const void *)(names->file + table->sh_offset);
    if (texts == NULL || table->sh_offset % alignof(ElfW(Sym)) != 0)
        return NULL;
    for (size_t i = 0; i < table->sh_size / sizeof *symbols; i++) {
        const ElfW(Sym) *symbol = &symbols[i];
        if ((symbol->st_info & 0xf) != STT_FUNC || value < symbol->st_value ||
            value - symbol->st_value >= symbol->st_size || symbol->st_name >= texts->sh_size)
            continue;
        const char *name = (const char *)names->file + texts->sh_offset + symbol->st_name;
        if (memchr(name, '\0', texts->sh_size - symbol->st_name) == NULL)
            return NULL;
        *offset = value - symbol->st_value;
        return name;
    }
    return NULL;
}

const char *ddp_crash_names_find(const ddp_crash_names *names, uintptr_t address, uintptr_t *offset)
{
    const ElfW(Ehdr) *head = (const void *)names->file;
    if (head == NULL || memcmp(head->e_ident, ELFMAG, SELFMAG) != 0 || address < names->base)
        return NULL;
    uintptr_t value = head->e_type == ET_DYN ? address - names->base : address; /* PIE or not */
    for (unsigned i = 0; i < head->e_shnum; i++) {
        const ElfW(Shdr) *section = find_section(names, i);
        if (section != NULL && section->sh_type == SHT_SYMTAB)
            return find_in(names, section, value, offset);
    }
    return NULL;
}
