/* The verb data: looks at data files (info), reads them in full (check), makes token files of text
 * (tokenize). */
#include "launcher/data.h"

#include <stdio.h>
#include <string.h>

typedef ddp_error *action_function(const ddp_arguments *arguments, const ddp_data_files *files, int *code);

static const struct {
    const char *name;
    action_function *run;
    unsigned options; /* a bit each */
} actions[] = {
    {"info", ddp_data_info, 1u << DDP_DATA_JSON | 1u << DDP_DATA_DTYPE},
    {"check", ddp_data_check, 1u << DDP_DATA_VOCAB | 1u << DDP_DATA_DTYPE},
    {"tokenize", ddp_data_tokenize,
     1u << DDP_DATA_VOCAB | 1u << DDP_DATA_DTYPE | 1u << DDP_DATA_OUT | 1u << DDP_DATA_MERGES |
         1u << DDP_DATA_SHARD_TOKENS | 1u << DDP_DATA_VAL_TOKENS | 1u << DDP_DATA_VAL_FRACTION |
         1u << DDP_DATA_END_OF_TEXT},
};

static const size_t action_count = sizeof actions / sizeof actions[0];

static ddp_error *unknown_action(const char *word)
{
    const char *names[sizeof actions / sizeof actions[0]];
    for (size_t i = 0; i < action_count; i++)
        names[i] = actions[i].name;
    const char *near = ddp_text_nearest(word, names, action_count);
    ddp_error *error = ddp_error_make(DDP_ERR_INPUT, "ddprun data does not know \"%s\"", word);
    if (near != NULL)
        return ddp_error_help(error, "did you mean ddprun data %s?", near);
    return ddp_error_help(error, "usage: ddprun data tokenize|info|check FILE...");
}

static ddp_error *check_options(const ddp_arguments *arguments, size_t action)
{
    for (size_t i = 0; ddp_verb_data.options[i].name != NULL; i++) {
        if (arguments->options[i] == NULL || actions[action].options >> i & 1)
            continue;
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "ddprun data %s takes no %s",
                                             actions[action].name, ddp_verb_data.options[i].name),
                              "ddprun data --help says which action takes which option");
    }
    return NULL;
}

static ddp_error *data_verb(const ddp_arguments *arguments, int *code)
{
    const char *word = arguments->operands[0];
    ddp_data_files files = {0};
    ddp_error *error = NULL;
    size_t action = 0;
    while (action < action_count && strcmp(actions[action].name, word) != 0)
        action++;
    if (action == action_count)
        return unknown_action(word);
    if (arguments->operand_count < 2)
        return ddp_error_help(ddp_error_make(DDP_ERR_INPUT, "ddprun data %s needs a file", word),
                              "usage: ddprun data %s FILE...", word);
    DDP_TRY(check_options(arguments, action));
    for (size_t i = 1; i < arguments->operand_count; i++)
        DDP_GO(ddp_data_files_add(&files, arguments->operands[i]));
    DDP_GO(actions[action].run(arguments, &files, code));
out:
    ddp_data_files_free(&files);
    return error;
}

ddp_error *ddp_data_read_dtype(const ddp_arguments *arguments, int *width)
{
    const char *text = arguments->options[DDP_DATA_DTYPE];
    *width = text == NULL ? 0 : strcmp(text, "uint16") == 0 ? 2 : strcmp(text, "uint32") == 0 ? 4 : -1;
    return *width >= 0 ? NULL
                       : ddp_error_make(DDP_ERR_INPUT, "--dtype: \"%s\" is neither uint16 nor uint32", text);
}

static const ddp_option data_options[] = {
    [DDP_DATA_JSON] = {.name = "--json", .help = "info: as one JSON object"},
    [DDP_DATA_VOCAB] = {.name = "--vocab",
                        .value = "N|FILE",
                        .help = "check: ids must be below N; tokenize: GPT-2's vocab.json"},
    [DDP_DATA_DTYPE] =
        {.name = "--dtype",
         .value = "uint16|uint32",
         .help = "ids of files without a header; tokenize: of the new files (the smaller that fits)"},
    [DDP_DATA_OUT] = {.name = "--out",
                      .value = "PREFIX",
                      .help = "tokenize: makes PREFIX_train_000000.bin, ... and PREFIX_val_000000.bin, ..."},
    [DDP_DATA_MERGES] = {.name = "--merges",
                         .value = "FILE",
                         .help = "tokenize: GPT-2's merges.txt; without it a token is a byte"},
    [DDP_DATA_SHARD_TOKENS] = {.name = "--shard-tokens",
                               .value = "N",
                               .help = "tokenize: ids in one file (100000000)"},
    [DDP_DATA_VAL_TOKENS] = {.name = "--val-tokens",
                             .value = "N",
                             .help = "tokenize: the first N ids are for validation"},
    [DDP_DATA_VAL_FRACTION] = {.name = "--val-fraction",
                               .value = "F",
                               .help = "tokenize: or that part of the text, 0.1 say"},
    [DDP_DATA_END_OF_TEXT] = {.name = "--end-of-text",
                              .value = "TOKEN",
                              .help = "tokenize: \"<|endoftext|>\", say: its id before each FILE's text, and "
                                      "for each one in it"},
    {.name = NULL},
};

const ddp_verb ddp_verb_data = {
    .name = "data",
    .usage = "info|check|tokenize FILE... [OPTIONS]",
    .help = "look at data files, verify them, make token files of text",
    .more =
        "\ninfo      what each file is: format, numbers, largest id, what it begins with\n"
        "check     reads each file in full: header against size, every id against --vocab; exit 2 if one is "
        "wrong\n"
        "tokenize  text in UTF-8 to token files with llm.c's header, by GPT-2's byte-pair encoding or byte "
        "by byte\n\n"
        "FILE may be a pattern in quotes: \"data/train_*.bin\".",
    .options = data_options,
    .min_operands = 1,
    .max_operands = SIZE_MAX,
    .run = data_verb,
};
