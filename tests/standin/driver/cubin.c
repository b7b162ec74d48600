/* What an image says about its kernels: parameters, registers, shared memory, and the module's global variables.

   A cubin is an ELF file. The registers of a kernel stand in the common section .nv.info, all else about it in
   .nv.info.KERNEL: a list of records (format, attribute, length or value, and with format 4 the payload). Of PTX text
   the signatures of its entries are read. */
#include "standin.h"
#include <ctype.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WITH_PAYLOAD = 4, MAX_THREADS = 0x05, REQUIRED_THREADS = 0x10, PARAMETER = 0x17, REGISTER_COUNT = 0x2f };
enum { PARAMETERS_AT_MOST = 4096, HAS_PTX = 15 }; /* the byte of the ELF identification where our ptxas leaves a P */
enum { RESERVED = 1024 }; /* of shared memory, by the system, since sm_90 */
static const unsigned char elf_magic[] = "\177ELF", fat_magic[] = "\x50\xed\x55\xba";

static int is_elf(const void *image) { return !memcmp(image, elf_magic, 4); }
static int is_fat(const void *image) { return !memcmp(image, fat_magic, 4); }

/* An ELF file ends where the last of its tables or sections does. */
static size_t length_of_elf(const char *image) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)image;
    const Elf64_Shdr *sections = (const Elf64_Shdr *)(image + head->e_shoff);
    size_t length = head->e_shoff + (size_t)head->e_shnum * sizeof *sections;
    size_t programs = head->e_phoff + (size_t)head->e_phnum * sizeof(Elf64_Phdr);
    if (programs > length) length = programs;
    for (int i = 0; i < head->e_shnum; i++) {
        size_t end = sections[i].sh_type == SHT_NOBITS ? 0 : sections[i].sh_offset + sections[i].sh_size;
        if (end > length) length = end;
    }
    return length;
}

size_t length_of(const void *image) {
    if (is_elf(image)) {
        size_t length = length_of_elf(image);
        return ((const char *)image)[HAS_PTX] == 'P' ? length + strlen((const char *)image + length) + 1 : length;
    }
    if (!is_fat(image)) return strlen(image) + 1;
    uint64_t length;
    memcpy(&length, (const char *)image + 8, sizeof length);
    return 16 + length;
}

CUfunction add_function(Module *module, const char *name, size_t length) {
    CUfunction f = calloc(1, sizeof *f);
    f->module = module, f->name = strndup(name, length), f->dynamic_at_most = SHARED_BY_DEFAULT;
    f->next = module->functions, module->functions = f;
    return f;
}

static void set_parameter(CUfunction f, int i, unsigned offset, unsigned size) {
    if (i >= PARAMETERS_AT_MOST) return;
    if (i >= f->count) {
        f->parameters = realloc(f->parameters, (i + 1) * sizeof *f->parameters);
        memset(f->parameters + f->count, 0, (i + 1 - f->count) * sizeof *f->parameters);
        f->count = i + 1;
    }
    f->parameters[i] = (Parameter){offset, size};
    if (offset + size > f->bytes) f->bytes = offset + size;
}

/* cubins */

typedef struct {
    Module *module;
    const Elf64_Ehdr *head;
    const Elf64_Shdr *sections;
    const char *names;
} Elf;

static const char *name_of(const Elf *elf, int i) { return elf->names + elf->sections[i].sh_name; }
static const unsigned char *content_of(const Elf *elf, int i) {
    return (unsigned char *)elf->module->image + elf->sections[i].sh_offset;
}

/* What follows the prefix in a section's name, or nothing. */
static const char *after(const char *name, const char *prefix) {
    size_t length = strlen(prefix);
    return strncmp(name, prefix, length) ? NULL : name + length;
}

typedef void Reader(const Elf *elf, int section, CUfunction f, int attribute, const uint32_t *words, int length);

static void each_record(const Elf *elf, int section, CUfunction f, Reader *reader) {
    const unsigned char *p = content_of(elf, section), *end = p + elf->sections[section].sh_size;
    while (p + 4 <= end) {
        int has_payload = p[0] == WITH_PAYLOAD, length = has_payload ? p[2] | p[3] << 8 : 0;
        uint32_t words[4] = {0};
        if (p + 4 + length > end) return;
        memcpy(words, p + 4, length < 16 ? length : 16);
        if (has_payload) reader(elf, section, f, p[1], words, length);
        p += 4 + length;
    }
}

static void read_kernel(const Elf *elf, int section, CUfunction f, int attribute, const uint32_t *words, int length) {
    if (length < 12) return;
    if (attribute == PARAMETER) set_parameter(f, words[1] & 0xffff, words[1] >> 16, words[2] >> 18);
    if (attribute == MAX_THREADS) f->threads_at_most = words[0] * words[1] * words[2];
    for (int k = 0; k < 3 && attribute == REQUIRED_THREADS; k++) f->required[k] = words[k];
}

static void read_registers(const Elf *elf, int section, CUfunction unused, int attribute, const uint32_t *words,
                           int length) {
    const Elf64_Shdr *table = &elf->sections[elf->sections[section].sh_link];
    if (attribute != REGISTER_COUNT || table->sh_type != SHT_SYMTAB) return;
    const Elf64_Sym *symbol = (const Elf64_Sym *)(elf->module->image + table->sh_offset) + words[0];
    const char *name = (const char *)content_of(elf, table->sh_link) + symbol->st_name;
    for (CUfunction f = elf->module->functions; f; f = f->next)
        if (!strcmp(f->name, name)) f->registers = words[1];
}

static void read_globals(const Elf *elf, int table) {
    const Elf64_Shdr *section = &elf->sections[table];
    const Elf64_Sym *symbols = (const Elf64_Sym *)content_of(elf, table);
    for (size_t i = 0; i < section->sh_size / sizeof *symbols; i++) {
        const Elf64_Sym *symbol = &symbols[i];
        int home = symbol->st_shndx;
        if (ELF64_ST_TYPE(symbol->st_info) != STT_OBJECT || !home || home >= elf->head->e_shnum) continue;
        if (!after(name_of(elf, home), ".nv.global") && !after(name_of(elf, home), ".nv.constant")) continue;
        Global *global = calloc(1, sizeof *global);
        global->name = strdup((const char *)content_of(elf, section->sh_link) + symbol->st_name);
        global->size = symbol->st_size;
        global->at = allocate(global->size ? global->size : 1, GLOBAL_MEMORY);
        if (elf->sections[home].sh_type != SHT_NOBITS)
            memcpy((void *)global->at, content_of(elf, home) + symbol->st_value, global->size);
        global->next = elf->module->globals, elf->module->globals = global;
    }
}

static void read_elf(Module *module) {
    Elf elf = {module, (const Elf64_Ehdr *)module->image};
    elf.sections = (const Elf64_Shdr *)(module->image + elf.head->e_shoff);
    elf.names = module->image + elf.sections[elf.head->e_shstrndx].sh_offset;
    int count = elf.head->e_shnum;
    for (int i = 0; i < count; i++) {
        const char *kernel = after(name_of(&elf, i), ".text."), *other;
        if (!kernel) continue;
        CUfunction f = add_function(module, kernel, strlen(kernel));
        for (int j = 0; j < count; j++) {
            if ((other = after(name_of(&elf, j), ".nv.info.")) && !strcmp(other, kernel))
                each_record(&elf, j, f, read_kernel);
            if ((other = after(name_of(&elf, j), ".nv.shared.")) && !strcmp(other, kernel))
                f->shared = elf.sections[j].sh_size - (arch_of(module) >= 90 ? RESERVED : 0);
        }
    }
    for (int i = 0; i < count; i++) {
        if (!strcmp(name_of(&elf, i), ".nv.info")) each_record(&elf, i, NULL, read_registers);
        if (elf.sections[i].sh_type == SHT_SYMTAB) read_globals(&elf, i);
    }
    if (module->image[HAS_PTX] == 'P') module->ptx = module->image + length_of_elf(module->image);
}

/* The architecture stands in the flags, from the second byte on in newer files. */
int arch_of(const Module *module) {
    const Elf64_Ehdr *head = (const Elf64_Ehdr *)module->image;
    if (module->kind != CUBIN) return 0;
    return head->e_ident[EI_ABIVERSION] >= 8 ? head->e_flags >> 8 & 0xff : head->e_flags & 0xff;
}

/* PTX */

static const char *skip_spaces(const char *p) {
    while (isspace((unsigned char)*p)) p++;
    return p;
}

/* `.param .align 16 .b8 x[64]` and `.param .u64 .ptr .global .align 16 x`: sizes, and alignments of values. */
static void read_parameter(CUfunction f, const char *p, const char *end) {
    unsigned align = 0, size = 0, offset = f->bytes;
    for (; p < end; p++) {
        if (after(p, ".ptr")) break;
        if (after(p, ".align")) align = atoi(p + 6);
        else if (p[0] == '.' && strchr("usbf", p[1]) && isdigit((unsigned char)p[2])) size = atoi(p + 2) / 8;
        else if (p[0] == '[') size *= atoi(p + 1);
    }
    if (!align) align = size ? size : 1;
    set_parameter(f, f->count, (offset + align - 1) / align * align, size);
}

static void read_ptx(Module *module) {
    module->ptx = module->image;
    for (const char *p = module->image; (p = strstr(p, ".entry"));) {
        const char *name = skip_spaces(p + 6);
        size_t length = strcspn(name, " \t\n(");
        CUfunction f = add_function(module, name, length);
        p = skip_spaces(name + length);
        if (*p != '(') continue;
        const char *close = strchr(p, ')');
        while (close && p < close) {
            const char *end = memchr(p + 1, ',', close - p - 1);
            if (!end) end = close;
            if (memchr(p, '.', end - p)) read_parameter(f, p, end);
            p = end;
        }
    }
}

void read_image(Module *module) {
    if (is_elf(module->image)) module->kind = CUBIN, read_elf(module);
    else if (is_fat(module->image)) module->kind = FATBIN;
    else if (strstr(module->image, ".version") && strstr(module->image, ".target"))
        module->kind = PTX, read_ptx(module);
}

/* for Python: one line for each kernel of an image */

EXPORT int standin_describe(const void *image, char *out, size_t size) {
    Module module = {.size = length_of(image)};
    module.image = memcpy(malloc(module.size + 1), image, module.size);
    module.image[module.size] = 0;
    read_image(&module);
    int used = 0;
    out[0] = 0;
    for (CUfunction f = module.functions; f; f = f->next)
        used +=
            snprintf(out + used, size - used, "%s %d registers %d shared %d parameters %u bytes %d threads arch %d\n",
                     f->name, f->registers, f->shared, f->count, f->bytes, f->required[0], arch_of(&module));
    return module.kind;
}
