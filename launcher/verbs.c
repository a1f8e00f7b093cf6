/* The command line: which verb, its options, help, and the one mouth that prints the launcher's errors. */
#include "launcher/verbs.h"

#include <ddp/ddp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/clock.h"
#include "core/memory.h"
#include "core/text.h"

static const ddp_verb *const verbs[] = {
    &ddp_verb_run,    &ddp_verb_plan, &ddp_verb_check, &ddp_verb_show,  &ddp_verb_topo, &ddp_verb_keys,
    &ddp_verb_schema, &ddp_verb_data, &ddp_verb_ckpt,  &ddp_verb_bench, &ddp_verb_postmortem,
    &ddp_verb_rank,   NULL,
};

static void print_short_help(FILE *out)
{
    fprintf(out, "usage: ddprun JOB.yaml [key=value ...]\n"
                 "       ddprun VERB ...\n\n");
    for (const ddp_verb *const *verb = verbs; *verb != NULL; verb++)
        if (!(*verb)->hidden)
            fprintf(out, "  %-10s %s\n", (*verb)->name, (*verb)->help);
    fprintf(out, "\n  ddprun VERB --help says more; ddprun --version names the version\n");
}

static void print_exit_codes(FILE *out)
{
    fprintf(out, "\nexit code: 0 done; 2 the job file, an option or the request is wrong, nothing was "
                 "started; 3 this machine\n"
                 "cannot run it; 130, 143 or 129 ended by SIGINT, SIGTERM or SIGHUP; otherwise the first "
                 "failing rank's own\n"
                 "code (128 + signal). A defect or a full disk of ddprun's own is 1.\n"
                 "\nenvironment: DDP_LOG=debug, or warn,launch=debug, sets the log; DDP_FAULT hurts a run on "
                 "purpose, for tests\n");
}

static void write_option(const ddp_option *option, char *to, size_t bytes)
{
    snprintf(to, bytes, "%s%s%s", option->name, option->value ? " " : "", option->value ? option->value : "");
}

static void print_options(const ddp_option *options, FILE *out)
{
    char left[64];
    int width = 12;
    for (const ddp_option *option = options; option->name != NULL; option++) {
        write_option(option, left, sizeof left);
        width = (int)strlen(left) > width ? (int)strlen(left) : width;
    }
    for (const ddp_option *option = options; option->name != NULL; option++) {
        write_option(option, left, sizeof left);
        fprintf(out, "%s  %-*s %s\n", option == options ? "\n" : "", width, left, option->help);
    }
}

static void print_verb_help(const ddp_verb *verb, FILE *out)
{
    fprintf(out, "usage: ddprun %s%s%s\n\n%s\n", verb->name, *verb->usage ? " " : "", verb->usage,
            verb->help);
    if (verb->more != NULL)
        fprintf(out, "%s\n", verb->more);
    if (verb->options != NULL)
        print_options(verb->options, out);
}

static const ddp_verb *find_verb(const char *word)
{
    for (const ddp_verb *const *verb = verbs; *verb != NULL; verb++)
        if (strcmp((*verb)->name, word) == 0)
            return *verb;
    return NULL;
}

/* "train.steps=20": a key, an equals sign, anything. */
static bool is_override(const char *word)
{
    size_t key = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-");
    return key > 0 && word[key] == '=' && word[0] != '-';
}

static ddp_error *unknown_option(const ddp_verb *verb, const char *word)
{
    const char *names[DDP_MAX_OPTIONS + 1];
    size_t count = 0, length = strcspn(word, "=");
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)length, word);
    for (const ddp_option *option = verb->options; option != NULL && option->name != NULL; option++)
        names[count++] = option->name;
    names[count++] = "--help";
    const char *near = ddp_text_nearest(name, names, count);
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "ddprun %s has no option %s", verb->name, name);
    return near != NULL ? ddp_error_help(error, "did you mean %s?", near)
                        : ddp_error_help(error, "ddprun %s --help lists them", verb->name);
}

/* One option at words[*at]; moves *at past its value. */
static ddp_error *take_option(const ddp_verb *verb, char **words, int count, int *at,
                              ddp_arguments *arguments)
{
    const char *word = words[*at];
    for (int i = 0; verb->options != NULL && verb->options[i].name != NULL; i++) {
        const ddp_option *option = &verb->options[i];
        size_t length = strlen(option->name);
        if (strncmp(word, option->name, length) != 0 || (word[length] != '\0' && word[length] != '='))
            continue;
        if (option->value == NULL && word[length] == '=')
            return ddp_error_make(DDP_ERR_INPUT, "%s takes no value", option->name);
        if (option->value != NULL && word[length] == '\0' && *at + 1 >= count)
            return ddp_error_make(DDP_ERR_INPUT, "%s needs a value: %s %s", option->name, option->name,
                                  option->value);
        arguments->options[i] = option->value == NULL ? ""
                                : word[length] == '=' ? word + length + 1
                                                      : words[++*at];
        return NULL;
    }
    return unknown_option(verb, word);
}

/* Sorts the words: operands to the front of `kept`, overrides behind them. */
static ddp_error *sort_words(const ddp_verb *verb, char **words, int count, const char **kept,
                             ddp_arguments *arguments)
{
    const char **overrides = kept + count;
    bool options = true;
    arguments->operands = kept;
    arguments->overrides = overrides;
    for (int i = 0; i < count; i++) {
        if (options && strcmp(words[i], "--") == 0)
            options = false;
        else if (options && words[i][0] == '-' && words[i][1] != '\0')
            DDP_TRY(take_option(verb, words, count, &i, arguments));
        else if (verb->overrides && is_override(words[i]))
            overrides[arguments->override_count++] = words[i];
        else
            kept[arguments->operand_count++] = words[i];
    }
    return NULL;
}

static ddp_error *check_operands(const ddp_verb *verb, const ddp_arguments *arguments)
{
    ddp_error *error = NULL;
    if (arguments->operand_count < verb->min_operands)
        error = ddp_error_make(DDP_ERR_INPUT, "ddprun %s needs %s", verb->name,
                               verb->overrides ? "a job file" : "more than that");
    else if (arguments->operand_count > verb->max_operands)
        error = ddp_error_make(DDP_ERR_INPUT, "ddprun %s does not know what to do with \"%s\"", verb->name,
                               arguments->operands[verb->max_operands]);
    return ddp_error_help(error, "usage: ddprun %s%s%s", verb->name, *verb->usage ? " " : "", verb->usage);
}

static bool asks_help(char **words, int count)
{
    for (int i = 0; i < count && strcmp(words[i], "--") != 0; i++)
        if (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0)
            return true;
    return false;
}

static ddp_error *run_verb(const ddp_verb *verb, char **words, int count, double started, int *code)
{
    ddp_arguments arguments = {.started = started};
    void *kept = NULL;
    ddp_error *error = NULL;
    if (asks_help(words, count)) {
        print_verb_help(verb, stdout);
        return NULL;
    }
    DDP_GO(ddp_memory_make((size_t)count * 2 + 1, sizeof(char *), &kept));
    DDP_GO(sort_words(verb, words, count, kept, &arguments));
    DDP_GO(check_operands(verb, &arguments));
    DDP_GO(verb->run(&arguments, code));
out:
    free(kept);
    return error;
}

/* Whether a first word that is no verb is meant as a job file. */
static bool looks_like_file(const char *word)
{
    struct stat info;
    return strchr(word, '/') != NULL || ddp_text_ends(word, ".yaml") || ddp_text_ends(word, ".yml") ||
           stat(word, &info) == 0;
}

static ddp_error *unknown_verb(const char *word)
{
    const char *names[sizeof verbs / sizeof verbs[0]];
    size_t count = 0;
    for (const ddp_verb *const *verb = verbs; *verb != NULL; verb++)
        if (!(*verb)->hidden)
            names[count++] = (*verb)->name;
    const char *near = ddp_text_nearest(word, names, count);
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "\"%s\" is neither a verb nor a job file", word);
    if (near != NULL)
        return ddp_error_help(error, "did you mean ddprun %s?", near);
    return ddp_error_help(error, "ddprun --help lists the verbs; a job file ends in .yaml");
}

static ddp_error *dispatch(int argc, char **argv, double started, int *code)
{
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        print_short_help(stdout);
        print_exit_codes(stdout);
        return NULL;
    }
    if (strcmp(word, "--version") == 0) {
        printf("ddprun " DDP_VERSION "\n");
        return NULL;
    }
    const ddp_verb *verb = find_verb(word);
    if (verb != NULL)
        return run_verb(verb, argv + 2, argc - 2, started, code);
    if (is_override(word) || word[0] == '-' || looks_like_file(word))
        return run_verb(&ddp_verb_run, argv + 1, argc - 1, started, code);
    return unknown_verb(word);
}

/* A closed standard stream would be given to the next file that is opened, and text for people written into
 * it. */
static void open_closed_streams(void)
{
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
            return;
}

int ddp_main(int argc, char **argv)
{
    double started = ddp_clock_now();
    int code = 0;
    open_closed_streams();
    if (argc < 2) {
        print_short_help(stderr);
        return 2;
    }
    ddp_error *error = dispatch(argc, argv, started, &code);
    if (error == NULL && (fflush(stdout) != 0 || ferror(stdout)))
        error = ddp_error_errno(errno, "writing to standard output");
    if (error != NULL) {
        ddp_error_print(error, "error", stderr);
        code = ddp_error_exit_code(error);
        ddp_error_free(error);
    }
    return code;
}

/* The name in the directory of `path` that is nearest to its last part, as a whole path; NULL = none. */
static char *nearest_file(const char *path)
{
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) + 1 : 0, best = 3; /* edits that still look like a slip */
    char *folder = length > 0 ? strndup(path, length) : strdup(".");
    char *found = NULL;
    DIR *directory = folder != NULL ? opendir(folder) : NULL;
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;) {
        size_t distance = ddp_text_distance(path + length, entry->d_name);
        if (distance >= best || distance * 2 > strlen(entry->d_name) || entry->d_name[0] == '.')
            continue;
        best = distance;
        free(found);
        if (asprintf(&found, "%.*s%s", (int)length, path, entry->d_name) < 0)
            found = NULL;
    }
    if (directory != NULL)
        closedir(directory);
    free(folder);
    return found;
}

static ddp_error *missing_file(const char *path)
{
    char *near = nearest_file(path);
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "%s: %s", path, strerror(ENOENT));
    error = near != NULL ? ddp_error_help(error, "did you mean %s?", near)
                         : ddp_error_help(error, "relative paths start from where ddprun was called");
    free(near);
    return error;
}

ddp_error *ddp_verb_load_job(const ddp_arguments *arguments, const char *extra, ddp_job **job)
{
    return ddp_verb_load_job_with(arguments, (const char *const[]){extra, NULL}, job);
}

ddp_error *ddp_verb_load_job_with(const ddp_arguments *arguments, const char *const *extras, ddp_job **job)
{
    size_t more = 0;
    struct stat info;
    const char *path = arguments->operands[0];
    void *all = NULL;
    ddp_error *error = NULL;
    if (stat(path, &info) != 0 && errno == ENOENT)
        return missing_file(path);
    size_t count = arguments->override_count;
    while (extras[more] != NULL)
        more++;
    DDP_GO(ddp_memory_make(count + more + 1, sizeof(char *), &all));
    memcpy(all, arguments->overrides, count * sizeof(char *));
    memcpy((const char **)all + count, extras, more * sizeof(char *));
    count += more;
    DDP_GO(ddp_job_load(path, all, count, job));
out:
    free(all);
    return error;
}

ddp_error *ddp_verb_read_int(const char *option, const char *text, int64_t min, int64_t max, int64_t *value)
{
    int64_t got;
    if (text == NULL)
        return NULL;
    if (!ddp_text_to_int(text, &got) || got < min || got > max)
        return ddp_error_make(DDP_ERR_INPUT, "%s: \"%s\" is not a whole number from %lld to %lld", option,
                              text, (long long)min, (long long)max);
    *value = got;
    return NULL;
}
