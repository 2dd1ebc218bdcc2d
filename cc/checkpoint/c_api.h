// Checkpoints for other languages: what Python reads and removes, without TensorFlow.
//
// Functions return null, or the error as text, which the caller frees with sok_free. The text begins with '!'
// if a checkpoint is damaged or a part of it is missing, and with '?' if the operating system refused
// something, so that nothing is known. Results that are texts are JSON, and are freed in the same way.
// Nothing is thrown. Thread-safe, except that one open checkpoint must not be closed while it is used.
#ifndef SOK_CC_CHECKPOINT_C_API_H_
#define SOK_CC_CHECKPOINT_C_API_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SOK_EXPORT __attribute__((visibility("default")))

typedef struct sok_checkpoint sok_checkpoint;

SOK_EXPORT void sok_free(char* text);

// Opens the checkpoint with this prefix, or if `retired` the one that it was before TensorFlow removed or
// replaced it. *checkpoint is null if there is none.
SOK_EXPORT char* sok_checkpoint_open(const char* prefix, int retired, sok_checkpoint** checkpoint);
SOK_EXPORT void sok_checkpoint_close(sok_checkpoint* checkpoint);

// {"tables": [names], "facts": {"id", "parts", "chains", "counted_by"} or null if there are no tables,
// "foreign":
// [{"name", "system"}]: the tables that other systems wrote, and variables that can be read as tables}
SOK_EXPORT char* sok_checkpoint_describe(sok_checkpoint* checkpoint, char** description);

// Whether there is a table of this name, of this library, or of another system or an ordinary variable.
SOK_EXPORT char* sok_checkpoint_has(sok_checkpoint* checkpoint, const char* name, int* has);

typedef struct sok_table sok_table;

// Opens a table of a checkpoint, and those that it builds on. They fit together, and their entries are
// consistent. The slots of another system's table become those of the optimizer `trained_by`, or if it is
// empty of the one that their names tell: see TakeSlotsByName. Null: they stay what they are.
SOK_EXPORT char* sok_table_open(sok_checkpoint* checkpoint, const char* name, const char* trained_by,
                                sok_table** table);
SOK_EXPORT void sok_table_close(sok_table* table);

// The links of the table's chain, the full one first and the table itself last: [{"prefix", "id", "table":
// its own entry, "system": the other system that wrote it or null, "slots_of": the optimizer whose slots it
// has there, "left_out": the tensors there that nothing here is read from, "static_keys": the number of keys
// without hashing, "shards": [each shard's entry, in which arrays also have their "file", "offset"
// and "stored_bytes" there; arrays of 16-bit floats are those that sok_array_read gives, of float32]}]
SOK_EXPORT char* sok_table_describe(sok_table* table, char** description);

// Reads bytes [first, first + bytes) of an array of a link, after verifying the blocks that have them.
SOK_EXPORT char* sok_array_read(sok_table* table, int link, int shard, const char* array, int64_t first,
                                int64_t bytes, void* data);

// Writes the shard of each of `count` keys to `shards`; for replicas the first one.
SOK_EXPORT void sok_table_owners(sok_table* table, const int64_t* keys, int64_t count, int64_t* shards);

// Writes the row with which each of `count` keys begins, rounded as the table's rows are, to `rows`,
// [count, dim]. Not for given initial rows.
SOK_EXPORT void sok_table_initial_rows(sok_table* table, const int64_t* keys, int64_t count, float* rows);

// Removes what saves and removals have left at a prefix, whose lock the caller holds.
SOK_EXPORT char* sok_remove_leftovers(const char* prefix);

// Removes what a prefix, whose lock the caller holds, had before TensorFlow removed or replaced it.
SOK_EXPORT char* sok_remove_retired(const char* prefix);

// Removes a checkpoint, whose lock the caller holds; its index goes first. If others build on it (`needed`),
// tables stay, and the index gets the name under which only they look for it.
SOK_EXPORT char* sok_remove_checkpoint(const char* prefix, int needed);

// From now on no Saver's max_to_keep counts the checkpoint, whose lock the caller holds.
SOK_EXPORT char* sok_keep_checkpoint(const char* prefix);

// Whether a checkpoint has a tensor of this name.
SOK_EXPORT int sok_checkpoint_has_tensor(sok_checkpoint* checkpoint, const char* name);

typedef struct sok_bundle sok_bundle;

// Begins a checkpoint of one rank: a tensor bundle of TensorFlow, with one data file. It is there when
// sok_bundle_finish has returned. Not thread-safe.
SOK_EXPORT char* sok_bundle_create(const char* prefix, sok_bundle** bundle);
SOK_EXPORT void sok_bundle_close(sok_bundle* bundle);

// Adds a small tensor of numbers; `dtype` as in NumPy.
SOK_EXPORT char* sok_bundle_add(sok_bundle* bundle, const char* name, const char* dtype, const int64_t* shape,
                                int dims, const void* data, int64_t bytes);
// Begins a large tensor of one or two dimensions. Several can be written at the same time; *array is its
// number.
SOK_EXPORT char* sok_bundle_new_array(sok_bundle* bundle, const char* name, const char* dtype,
                                      const int64_t* shape, int dims, int* array);
// Writes the next bytes of it. With the last ones it is finished.
SOK_EXPORT char* sok_bundle_write(sok_bundle* bundle, int array, const void* data, int64_t bytes);
// Makes the arrays NAME#0/keys, NAME#0/values and so on, which are complete, a table of this library:
// `table`, of another system, with `rows` rows in one shard. Ids that wait have occurred less than
// `filter_freq` times; 0: there are none.
SOK_EXPORT char* sok_bundle_add_table(sok_bundle* bundle, sok_table* table, int64_t rows,
                                      int64_t filter_freq);
// Copies all tensors of a checkpoint that are not of tables: of this library, of other systems, or one of
// `count` variables that were read as tables.
SOK_EXPORT char* sok_bundle_copy(sok_bundle* bundle, sok_checkpoint* checkpoint, const char* const* variables,
                                 int count);
// Writes the index. All arrays must have all their bytes. `id` is that of the save, see SaveRequest, if there
// are tables, and else null.
SOK_EXPORT char* sok_bundle_finish(sok_bundle* bundle, const char* id);

// {rule: {"optimizer": TensorFlow's name of it, "slots": {our name: TensorFlow's}}}, for the rules whose
// slots TensorFlow's optimizers have too.
SOK_EXPORT char* sok_slots_of_rules(char** description);

#ifdef __cplusplus
}
#endif

#endif  // SOK_CC_CHECKPOINT_C_API_H_
