// Ops that make, inspect, fill and empty the tables behind embedding variables.
//
// All ops are stateful: they depend on the session's tables or change them.
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace sok {
namespace {

namespace shape = ::tensorflow::shape_inference;
using shape::InferenceContext;

REGISTER_OP("SokInit")
    .Input("arguments: int64")
    .Attr("rank: int >= 0 = 0")
    .Attr("ranks: int >= 1 = 1")
    .Output("status: string")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc(
        R"(Prepares the session for embedding variables; `status` is 'OK'. May run again with the same arguments.
arguments: [3 * ranks] for each rank: the global batch size, the seed, and the enum of the dtype that gradients are
  sent in. Rank 0's seed is used; the other arguments must be equal on all ranks.)");

REGISTER_OP("SokInitHasRun")
    .Input("arguments: int64")
    .Attr("rank: int >= 0 = 0")
    .Attr("ranks: int >= 1 = 1")
    .Output("has_run: bool")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc(R"(Whether SokInit has run in the session. FailedPrecondition if it has run with other arguments,
except for the batch size.
arguments: [3] the arguments of this rank, as for SokInit. Only rank 0 compares its seed.)");

REGISTER_OP("SokTable")
    .Attr("container: string = ''")
    .Attr("shared_name: string = ''")
    .Output("handle: resource")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc("The handle of an embedding variable named `shared_name`.");

// The attributes of a table that all processes have which use it.
#define SOK_TABLE_ATTRIBUTES                                           \
  Attr("dim: int >= 1")                                                \
      .Attr("capacity: int >= 0 = 0")                                  \
      .Attr("use_hashtable: bool = true")                              \
      .Attr("key_dtype: {int32, int64, uint32} = DT_INT64")            \
      .Attr("on_full: {'error', 'evict_lru', 'evict_lfu'} = 'error'")  \
      .Attr("admission: {'none', 'counter', 'bloom'} = 'none'")        \
      .Attr("filter_freq: int >= 0 = 0")                               \
      .Attr("default_value: float = 0.0")                              \
      .Attr("before_lookup: bool = false")                             \
      .Attr("max_element_size: int >= 0 = 0")                          \
      .Attr("false_positive_probability: float = 0.01")                \
      .Attr("counter_bits: int = 64")                                  \
      .Attr("eviction: {'none', 'global_step', 'l2_weight'} = 'none'") \
      .Attr("steps_to_live: int >= 0 = 0")                             \
      .Attr("l2_weight_threshold: float = 0.0")                        \
      .Attr("placement: string = 'by_key'")                            \
      .Attr("memory: {'device', 'host'} = 'device'")                   \
      .Attr("tier_bytes: int >= 0 = 0")                                \
      .Attr("tier_folder: string = ''")                                \
      .Attr("tier_host_bytes: int >= 0 = 0")                           \
      .Attr("tier_by_frequency: bool = false")                         \
      .Attr("row_dtype: {float, half, bfloat16} = DT_FLOAT")           \
      .Attr("slot_dtype: {float, bfloat16} = DT_FLOAT")                \
      .Attr("rounding: {'stochastic', 'nearest'} = 'stochastic'")      \
      .Attr("engine: string = ''")

REGISTER_OP("SokInitializeTable")
    .Input("handle: resource")
    .Input("initial_rows: num_initial_rows * float")
    .Attr("num_initial_rows: int >= 0 = 0")
    .SOK_TABLE_ATTRIBUTES
    .Attr("initializer: {'constant', 'uniform', 'normal', 'truncated_normal', 'given'} = 'uniform'")
    .Attr("initializer_args: list(float) = [-0.05, 0.05]")
    .Attr("initializer_seed: int = 0")
    .Attr("initializer_rows: int >= 0 = 0")
    .Attr("keep_existing: bool = false")
    .Attr("for_restore: bool = false")
    .Attr("rank: int >= 0 = 0")
    .Attr("ranks: int >= 0 = 0")
    .SetIsStateful()
    .SetShapeFn(shape::NoOutputs)
    .Doc(R"(Makes the table of an embedding variable. Replaces an existing table, unless keep_existing.
capacity: the number of rows on this rank; 0: no limit.
initial_rows: for the initializer 'given' one tensor [rows, dim], the initial rows that keys share; otherwise none.
initializer_args: constant [value], uniform [low, high), normal and truncated_normal [mean, stddev].
initializer_rows: the number of initial rows that keys share, below 2^32; 0: each key has its own.
keep_existing: unless it is a table of other keys: of another rank, or with other attributes.
for_restore: a table that it makes cannot be used, nor counts as initialized, until it is restored.
rank, ranks: this process among those that hold the rows; ranks = 0: as the session's SokInit has it.
on_full ... l2_weight_threshold: see TableOptions.
placement: which rank holds which key, as Placement::Text writes it.
memory: where a device's engine keeps rows and slots.
tier_bytes, tier_folder, tier_host_bytes, tier_by_frequency: how much memory they take, and where the others are: see TierOptions.
row_dtype, slot_dtype: in which rows and slots are kept; lookups and updates compute in float32.
rounding: how updates round to 16 bits.
engine: the engine that makes the table, but not that of another kind of device; empty: that of the op's device.)");

REGISTER_OP("SokDescribeTable")
    .SOK_TABLE_ATTRIBUTES.Attr("shared_name: string")
    .Attr("ranks: int >= 1")
    .Attr("gradient_dtype: {float, half, bfloat16} = DT_FLOAT")
    .Output("handle: resource")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc(
        R"(Describes the table of an embedding variable named `shared_name` whose rows are on `ranks` servers.
gradient_dtype: what gradients of rows are sent as.
handle: an input of the ops that send and receive messages: SokGroupRoute, SokGroupCombine and SokGroupReduce. There
  are no rows behind it. The other attributes are those of SokInitializeTable.)");

REGISTER_OP("SokTableIsInitialized")
    .Input("handle: resource")
    .Output("is_initialized: bool")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape);

REGISTER_OP("SokTableSize")
    .Input("handle: resource")
    .Output("rows: int64")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc("The number of rows on this rank.");

REGISTER_OP("SokTableStatistics")
    .Input("handles: num_tables * resource")
    .Attr("num_tables: int >= 0")
    .Output("statistics: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      c->set_output(0, c->Matrix(c->num_inputs(), 13));
      return ::tensorflow::Status();
    })
    .Doc(
        R"(The number of rows of this rank's tables, and statistics of training lookups since the tables were made.
statistics: [num_tables, 13] for each table: rows (0 for replicas on ranks other than 0); from LookupCounts: ids,
  distinct ids, admitted ids, filtered ids and bytes sent; and TierCounts, in their order.)");

REGISTER_OP("SokTableSetGlobalStep")
    .Input("handle: resource")
    .Input("global_step: int64")
    .SetIsStateful()
    .SetShapeFn(shape::NoOutputs)
    .Doc("Sets the global step, a scalar of at least 0, of a table's next update: see Table::SetGlobalStep.");

REGISTER_OP("SokTableEvict")
    .Input("handle: resource")
    .Input("keys: int64")
    .Output("evicted: int64")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc(R"(Erases keys. Skips keys without a row and keys of other ranks.
evicted: the number of rows erased on this rank.)");

REGISTER_OP("SokTableExport")
    .Input("handle: resource")
    .Attr("dim: int >= 1")
    .Output("keys: int64")
    .Output("rows: int64")
    .Output("values: float")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int64_t dim = 0;
      TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      c->set_output(0, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(2, c->Matrix(InferenceContext::kUnknownDim, dim));
      return ::tensorflow::Status();
    })
    .Doc(R"(The rows of this rank, in order of row number.
keys, rows, values: [n], [n] and [n, dim]: the key, the row number and the weights of each row.)");

REGISTER_OP("SokTableSnapshot")
    .Input("handle: resource")
    .Attr("dim: int >= 1")
    .Attr("with_values: bool = true")
    .Output("keys: int64")
    .Output("values: float")
    .Output("frequency: int64")
    .Output("last_step: int64")
    .Output("waiting: int64")
    .Output("waiting_frequency: int64")
    .Output("waiting_last_step: int64")
    .SetIsStateful()
    .SetShapeFn([](InferenceContext* c) {
      int64_t dim = 0;
      TF_RETURN_IF_ERROR(c->GetAttr("dim", &dim));
      for (int i = 0; i < c->num_outputs(); ++i) c->set_output(i, c->Vector(InferenceContext::kUnknownDim));
      c->set_output(1, c->Matrix(InferenceContext::kUnknownDim, dim));
      return ::tensorflow::Status();
    })
    .Doc(R"(All that this rank keeps of keys, except slots, at one moment; rows in order of row number.
keys, values: [n] and [n, dim]: the key and the weights of each row; values is [0, dim] unless with_values.
frequency, last_step: [n]: occurrences in training lookups, and the table's step at the last update; [0] if
the table does not keep them.
waiting, waiting_frequency, waiting_last_step: [w]: the ids that a CounterFilter has not admitted, how often
they occurred, and the table's step when they last did.)");

REGISTER_OP("SokTableAssign")
    .Input("handle: resource")
    .Input("keys: int64")
    .Input("values: float")
    .Output("status: string")
    .SetIsStateful()
    .SetShapeFn(shape::ScalarShape)
    .Doc(
        R"(Sets the weights of distinct keys, inserting absent keys. Skips keys of other ranks. `status` is 'OK'.
keys, values: [n] and [n, dim].)");

// The op that numbers keys.

REGISTER_OP("SokVocabularyLookup")
    .Input("keys: resource")
    .Input("counts: resource")
    .Input("slots: resource")
    .Input("size: resource")
    .Input("ids: int64")
    .Input("occurrences: int64")
    .Input("add: bool")
    .Attr("layer: string")
    .Output("numbers: int64")
    .SetIsStateful()
    .SetShapeFn([](::tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->input(4));
      return ::tensorflow::Status();
    })
    .Doc(R"(Numbers ids in the order of their first occurrence (cc/vocabulary). One thread adds at a time.
keys: an int64 variable [max + 1].
counts: an int64 variable [max + 1].
slots: an int32 variable, as long as cc/vocabulary asks for.
size: a scalar int64 variable.
ids: of any shape.
occurrences: how often each id occurs; empty: once. Not read without `add`.
add: a scalar; whether new ids get numbers and occurrences are counted.
layer: for messages.
numbers: of the ids, 0 for those without one.)");

}  // namespace

}  // namespace sok
