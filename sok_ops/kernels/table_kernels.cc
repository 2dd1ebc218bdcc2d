// Kernels that make and inspect tables.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/hash.h"
#include "cc/engine/engine.h"
#include "cc/engine/registry.h"
#include "cc/table/table_errors.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/resources.h"
#include "sok_ops/kernels/scalars.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

SOK_KERNEL(tf::ResourceHandleOp<TableResource>, "SokTable", "handle");

tf::Status InitializerFromAttrs(tf::OpKernelConstruction* construction, Initializer* initializer) {
  std::string kind;
  std::vector<float> args;
  TF_RETURN_IF_ERROR(construction->GetAttr("initializer", &kind));
  TF_RETURN_IF_ERROR(construction->GetAttr("initializer_args", &args));
  if (kind == "given") {
    *initializer = Initializer(InitializerKind::kGiven, 0.0f, 0.0f, 0);
    return tf::Status();
  }
  const size_t wanted = kind == "constant" ? 1 : 2;
  if (args.size() != wanted) {
    return tf::errors::InvalidArgument("Initializer '", kind, "' takes ", wanted, " arguments, not ",
                                       args.size());
  }
  initializer->kind = kind == "constant"  ? InitializerKind::kConstant
                      : kind == "uniform" ? InitializerKind::kUniform
                      : kind == "normal"  ? InitializerKind::kNormal
                                          : InitializerKind::kTruncatedNormal;
  initializer->a = args[0];
  initializer->b = wanted == 2 ? args[1] : 0.0f;
  int64_t rows = 0;
  TF_RETURN_IF_ERROR(construction->GetAttr("initializer_rows", &rows));
  if (rows > std::numeric_limits<uint32_t>::max()) {
    return tf::errors::InvalidArgument("initializer_rows must be below 2^32, not ", rows);
  }
  initializer->rows = static_cast<uint32_t>(rows);
  return tf::Status();
}

// Copies the op's input initial_rows.
tf::Status TakeInitialRows(tf::OpKernelContext* context, TableOptions* options) {
  tf::OpInputList given;
  TF_RETURN_IF_ERROR(context->input_list("initial_rows", &given));
  const int wanted = options->initializer.kind == InitializerKind::kGiven ? 1 : 0;
  if (given.size() != wanted) {
    return tf::errors::InvalidArgument("Embedding variable '", options->name, "': ", given.size(),
                                       " tensors of initial rows, not ", wanted);
  }
  if (wanted == 0) return tf::Status();
  const tf::Tensor& rows = given[0];
  if (rows.dims() != 2 || rows.dim_size(0) < 1 || rows.dim_size(0) > std::numeric_limits<uint32_t>::max() ||
      rows.dim_size(1) != options->dim) {
    return tf::errors::InvalidArgument("Embedding variable '", options->name, "': initial rows have shape ",
                                       rows.shape().DebugString(), ", not [rows, ", options->dim, "]");
  }
  const auto values = rows.flat<float>();
  options->initializer.rows = static_cast<uint32_t>(rows.dim_size(0));
  options->initial_rows.assign(values.data(), values.data() + values.size());
  return tf::Status();
}

tf::Status PoliciesFromAttrs(tf::OpKernelConstruction* construction, TableOptions* options) {
  std::string on_full;
  std::string admission;
  std::string eviction;
  float probability;
  TF_RETURN_IF_ERROR(construction->GetAttr("on_full", &on_full));
  TF_RETURN_IF_ERROR(construction->GetAttr("admission", &admission));
  TF_RETURN_IF_ERROR(construction->GetAttr("filter_freq", &options->admission.filter_freq));
  TF_RETURN_IF_ERROR(construction->GetAttr("default_value", &options->admission.default_value));
  TF_RETURN_IF_ERROR(construction->GetAttr("before_lookup", &options->admission.before_lookup));
  TF_RETURN_IF_ERROR(construction->GetAttr("max_element_size", &options->admission.max_element_size));
  TF_RETURN_IF_ERROR(construction->GetAttr("false_positive_probability", &probability));
  TF_RETURN_IF_ERROR(construction->GetAttr("counter_bits", &options->admission.counter_bits));
  TF_RETURN_IF_ERROR(construction->GetAttr("eviction", &eviction));
  TF_RETURN_IF_ERROR(construction->GetAttr("steps_to_live", &options->eviction.steps_to_live));
  TF_RETURN_IF_ERROR(construction->GetAttr("l2_weight_threshold", &options->eviction.l2_weight_threshold));
  options->on_full = on_full == "evict_lru"   ? OnFull::kEvictLru
                     : on_full == "evict_lfu" ? OnFull::kEvictLfu
                                              : OnFull::kError;
  options->admission.false_positive_probability = probability;
  options->admission.kind = admission == "counter" ? Admission::Kind::kCounter
                            : admission == "bloom" ? Admission::Kind::kBloom
                                                   : Admission::Kind::kNone;
  options->eviction.kind = eviction == "global_step" ? Eviction::Kind::kGlobalStep
                           : eviction == "l2_weight" ? Eviction::Kind::kL2Weight
                                                     : Eviction::Kind::kNone;
  return tf::Status();
}

tf::Status MemoryFromAttr(tf::OpKernelConstruction* construction, RowMemory* memory) {
  std::string name;
  TF_RETURN_IF_ERROR(construction->GetAttr("memory", &name));
  *memory = name == "host" ? RowMemory::kHost : RowMemory::kDevice;
  return tf::Status();
}

tf::Status TiersFromAttrs(tf::OpKernelConstruction* construction, TierOptions* tiers) {
  TF_RETURN_IF_ERROR(construction->GetAttr("tier_bytes", &tiers->memory_bytes));
  TF_RETURN_IF_ERROR(construction->GetAttr("tier_folder", &tiers->folder));
  TF_RETURN_IF_ERROR(construction->GetAttr("tier_host_bytes", &tiers->host_bytes));
  return construction->GetAttr("tier_by_frequency", &tiers->by_frequency);
}

FloatType FloatTypeOf(tf::DataType type) {
  return type == tf::DT_HALF       ? FloatType::kFloat16
         : type == tf::DT_BFLOAT16 ? FloatType::kBfloat16
                                   : FloatType::kFloat32;
}

tf::Status RecordFromAttrs(tf::OpKernelConstruction* construction, RecordFormat* record) {
  tf::DataType rows;
  tf::DataType slots;
  std::string rounding;
  TF_RETURN_IF_ERROR(construction->GetAttr("row_dtype", &rows));
  TF_RETURN_IF_ERROR(construction->GetAttr("slot_dtype", &slots));
  TF_RETURN_IF_ERROR(construction->GetAttr("rounding", &rounding));
  record->weights = FloatTypeOf(rows);
  record->slots = FloatTypeOf(slots);
  record->rounding = rounding == "nearest" ? Rounding::kNearest : Rounding::kStochastic;
  return tf::Status();
}

// The engine that the op's attribute names, or if it is empty the engine of the op's device. InvalidArgument
// if it is that of another kind of device: it could not read the memory of the op's tensors.
tf::Status EngineNameFromAttr(tf::OpKernelConstruction* construction, std::string* name) {
  TF_RETURN_IF_ERROR(construction->GetAttr("engine", name));
  const std::string own = EngineOfDevice(*construction);
  if (name->empty()) *name = own;
  if (*name == own || (*name != "cpu" && *name != "gpu")) return tf::Status();
  return tf::errors::InvalidArgument("SokInitializeTable: the engine '", *name, "' cannot make a table on ",
                                     construction->device_type().type_string());
}

// The attributes that all processes of a table have.
struct TableAttributes {
  TableOptions options;
  tf::DataType key_dtype = tf::DT_INT64;
  std::string placement;
  std::string engine;

  tf::Status Read(tf::OpKernelConstruction* construction) {
    TF_RETURN_IF_ERROR(construction->GetAttr("dim", &options.dim));
    TF_RETURN_IF_ERROR(construction->GetAttr("capacity", &options.capacity));
    TF_RETURN_IF_ERROR(construction->GetAttr("use_hashtable", &options.use_hashtable));
    TF_RETURN_IF_ERROR(construction->GetAttr("key_dtype", &key_dtype));
    TF_RETURN_IF_ERROR(construction->GetAttr("placement", &placement));
    TF_RETURN_IF_ERROR(PoliciesFromAttrs(construction, &options));
    TF_RETURN_IF_ERROR(MemoryFromAttr(construction, &options.memory));
    TF_RETURN_IF_ERROR(TiersFromAttrs(construction, &options.tiers));
    TF_RETURN_IF_ERROR(RecordFromAttrs(construction, &options.record));
    TF_RETURN_IF_ERROR(EngineNameFromAttr(construction, &engine));
    options.key_dtype = tf::DataTypeString(key_dtype);
    return tf::Status();
  }

  // The options of the variable `name`.
  tf::Status OptionsOf(const std::string& name, TableOptions* of_variable) const {
    *of_variable = options;
    of_variable->name = name;
    const StatusOr<Placement> parsed = Placement::Parse(placement);
    if (!parsed.ok()) {
      return tf::errors::InvalidArgument("Embedding variable '", name, "': ", parsed.status().message());
    }
    of_variable->placement = parsed.value();
    return tf::Status();
  }

  // Makes a table with `options`, which are these with more of them set.
  tf::Status Make(tf::OpKernelContext* context, TableOptions options,
                  std::shared_ptr<EngineTable>* table) const {
    const StatusOr<Engine*> found = FindEngine(engine);
    if (!found.ok()) {
      return tf::errors::InvalidArgument("Embedding variable '", options.name,
                                         "': ", found.status().message());
    }
    const TfEngineContext call(context);
    StatusOr<std::shared_ptr<EngineTable>> made = found.value()->MakeTable(*call, std::move(options));
    TF_RETURN_IF_ERROR(ToTf(made.status()));
    *table = std::move(made.value());
    return tf::Status();
  }
};

class InitializeTableOp : public tf::OpKernel {
 public:
  explicit InitializeTableOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, attributes_.Read(construction));
    OP_REQUIRES_OK(construction, InitializerFromAttrs(construction, &attributes_.options.initializer));
    OP_REQUIRES_OK(construction, construction->GetAttr("initializer_seed", &seed_));
    OP_REQUIRES_OK(construction, construction->GetAttr("rank", &rank_));
    OP_REQUIRES_OK(construction, construction->GetAttr("ranks", &ranks_));
    OP_REQUIRES_OK(construction, construction->GetAttr("keep_existing", &keep_existing_));
    OP_REQUIRES_OK(construction, construction->GetAttr("for_restore", &for_restore_));
    OP_REQUIRES(construction, ranks_ == 0 || rank_ < ranks_,
                tf::errors::InvalidArgument("SokInitializeTable: rank ", rank_, " of ", ranks_, " ranks"));
  }

  void Compute(tf::OpKernelContext* context) override {
    const tf::ResourceHandle* handle = nullptr;
    OP_REQUIRES_OK(context, TableHandle(context, 0, &handle));
    const std::string& name = handle->name();
    tf::core::RefCountPtr<Runtime> runtime;
    OP_REQUIRES_OK(
        context,
        LookupRuntime(context, StrCat("The initializer of embedding variable '", name, "'"), &runtime));
    TableOptions options;
    OP_REQUIRES_OK(context, attributes_.OptionsOf(name, &options));
    options.rank = ranks_ > 0 ? rank_ : runtime->rank;
    options.ranks = ranks_ > 0 ? ranks_ : runtime->ranks;
    // A server's tables outlive the program that made them, and the next one may have other servers.
    TableRef existing;
    const bool keeps = keep_existing_ && (!LookupTable(context, 0, &existing).ok() ||
                                          HoldTheSameKeys(existing.table->options(), options));
    if (keeps && existing.table != nullptr) return;
    // Initial rows depend only on the session's seed, the initializer's seed, the variable's name and the
    // key.
    options.initializer.seed = Mix64(Mix64(runtime->seed ^ Mix64(static_cast<uint64_t>(seed_))) ^
                                     Fingerprint64(name.data(), name.size()));
    OP_REQUIRES_OK(context, TakeInitialRows(context, &options));
    std::shared_ptr<EngineTable> table;
    OP_REQUIRES_OK(context, attributes_.Make(context, std::move(options), &table));

    TableResource* resource = nullptr;
    OP_REQUIRES_OK(
        context,
        tf::LookupOrCreateResource<TableResource>(context, *handle, &resource, [&](TableResource** created) {
          *created = new TableResource(table, attributes_.key_dtype, runtime->gradient_dtype);
          if (for_restore_) (*created)->Lose(kBeingRestored);
          return tf::Status();
        }));
    const tf::core::ScopedUnref unref(resource);
    // Another op may have made the table since this one looked for it, and others may have used it since.
    if (!keeps) resource->Replace(std::move(table), for_restore_ ? kBeingRestored : "");
  }

 private:
  TableAttributes attributes_;
  int64_t seed_;
  int rank_;
  int ranks_;
  bool keep_existing_;
  bool for_restore_;
};
SOK_KERNEL(InitializeTableOp, "SokInitializeTable", "handle", "initial_rows");

class DescribeTableOp : public tf::OpKernel {
 public:
  explicit DescribeTableOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, attributes_.Read(construction));
    std::string name;
    OP_REQUIRES_OK(construction, construction->GetAttr("shared_name", &name));
    OP_REQUIRES_OK(construction, attributes_.OptionsOf(name, &options_));
    OP_REQUIRES_OK(construction, construction->GetAttr("ranks", &options_.ranks));
    OP_REQUIRES_OK(construction, construction->GetAttr("gradient_dtype", &gradient_dtype_));
    options_.rank = kNoRank;
    const std::string text = StrCat(Describe(options_), " on ", options_.ranks, " ranks, ",
                                    tf::DataTypeString(gradient_dtype_), " gradients");
    resource_name_ = StrCat(name, "/", Fingerprint64(text.data(), text.size()));
  }

  void Compute(tf::OpKernelContext* context) override {
    const auto handle = tf::MakeResourceHandle<TableResource>(context, "sok_descriptions", resource_name_);
    TableResource* resource = nullptr;
    OP_REQUIRES_OK(
        context,
        tf::LookupOrCreateResource<TableResource>(context, handle, &resource, [&](TableResource** created) {
          std::shared_ptr<EngineTable> table;
          TF_RETURN_IF_ERROR(attributes_.Make(context, options_, &table));
          *created = new TableResource(std::move(table), attributes_.key_dtype, gradient_dtype_);
          return tf::Status();
        }));
    resource->Unref();
    OP_REQUIRES_OK(context, OutputScalar(context, 0, handle));
  }

 private:
  TableAttributes attributes_;
  TableOptions options_;
  tf::DataType gradient_dtype_;
  // Different for different descriptions: a worker's resources outlive the sessions that share them.
  std::string resource_name_;
};
SOK_KERNEL(DescribeTableOp, "SokDescribeTable", "handle");

class TableIsInitializedOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, OutputScalar(context, 0, LookupTable(context, 0, &ref).ok()));
  }
};
SOK_KERNEL(TableIsInitializedOp, "SokTableIsInitialized", "handle", "is_initialized");

class TableSizeOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    OP_REQUIRES_OK(context, OutputScalar(context, 0, ref.table->Describe().rows));
  }
};
SOK_KERNEL(TableSizeOp, "SokTableSize", "handle", "rows");

class TableStatisticsOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    tf::Tensor* output = nullptr;
    OP_REQUIRES_OK(context,
                   context->allocate_output(0, tf::TensorShape({context->num_inputs(), kNumbers}), &output));
    int64_t* next = output->flat<int64_t>().data();
    for (int t = 0; t < context->num_inputs(); ++t, next += kNumbers) {
      TableRef ref;
      OP_REQUIRES_OK(context, LookupTable(context, t, &ref));
      const LookupCounts& counts = ref.table->lookup_counts();
      const TableOptions& options = ref.table->options();
      const TableDescription table = ref.table->Describe();
      const TierCounts& tiers = table.tiers;
      const int64_t rows = options.placement.represents(options.rank) ? table.rows : 0;
      const int64_t numbers[kNumbers] = {rows,
                                         counts.ids,
                                         counts.distinct_ids,
                                         counts.admitted_ids,
                                         counts.filtered_ids,
                                         counts.bytes_sent,
                                         tiers.rows_in_memory,
                                         tiers.bytes_on_disk,
                                         tiers.hits,
                                         tiers.misses,
                                         tiers.bytes_up,
                                         tiers.bytes_down,
                                         tiers.disk_rows};
      std::copy(std::begin(numbers), std::end(numbers), next);
    }
  }

 private:
  static constexpr int kNumbers = 13;
};
SOK_KERNEL(TableStatisticsOp, "SokTableStatistics", "handles", "statistics");

class TableSetGlobalStepOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const tf::Tensor& input = context->input(1);
    OP_REQUIRES(context, tf::TensorShapeUtils::IsScalar(input.shape()),
                tf::errors::InvalidArgument("Embedding variable '", ref.table->options().name,
                                            "': the global step has shape ", input.shape().DebugString(),
                                            ", not []"));
    const int64_t step = input.scalar<int64_t>()();
    OP_REQUIRES(context, step >= 0 && step < std::numeric_limits<int64_t>::max(),
                tf::errors::InvalidArgument("Embedding variable '", ref.table->options().name,
                                            "': the global step is ", step, ", not in [0, 2^63 - 1)"));
    OP_REQUIRES_OK(context, ToTf(ref.table->SetGlobalStep(step)));
  }
};
SOK_KERNEL(TableSetGlobalStepOp, "SokTableSetGlobalStep", "handle", "global_step");

class TableEvictOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const tf::Tensor& keys = context->input(1);
    tf::Tensor* evicted = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({}), &evicted));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, ToTf(ref.table->Erase(*call, {keys.flat<int64_t>().data(), keys.NumElements()},
                                                  &evicted->scalar<int64_t>()())));
  }
};
SOK_KERNEL(TableEvictOp, "SokTableEvict", "handle", "evicted");

// The kernel that sets the weights of keys.

// Keys in [n] and values in [n, dim].
tf::Status CheckShapes(const TableRef& ref, const tf::Tensor& keys, const tf::Tensor& values) {
  const int64_t dim = ref.table->options().dim;
  if (keys.dims() != 1 || values.dims() != 2 || values.dim_size(0) != keys.dim_size(0) ||
      values.dim_size(1) != dim) {
    return tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' of dim ", dim, " cannot take ",
                                       "keys of shape ", keys.shape().DebugString(), " with values of shape ",
                                       values.shape().DebugString());
  }
  return tf::Status();
}

class TableAssignOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    const tf::Tensor& keys = context->input(1);
    const tf::Tensor& values = context->input(2);
    OP_REQUIRES_OK(context, CheckShapes(ref, keys, values));
    const TfEngineContext call(context);
    OP_REQUIRES_OK(context, ToTf(ref.table->Assign(*call, {keys.flat<int64_t>().data(), keys.NumElements()},
                                                   values.flat<float>().data())));
    OP_REQUIRES_OK(context, OutputOk(context));
  }
};
SOK_KERNEL(TableAssignOp, "SokTableAssign", "handle", "status");

// The kernel that returns all rows of a table as tensors.

class TableExportOp : public tf::OpKernel {
 public:
  explicit TableExportOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, construction->GetAttr("dim", &dim_));
  }

  void Compute(tf::OpKernelContext* context) override {
    TableRef ref;
    OP_REQUIRES_OK(context, LookupTable(context, 0, &ref));
    OP_REQUIRES(context, ref.table->options().dim == dim_,
                tf::errors::InvalidArgument("Embedding variable '", ref.name(), "' has rows of ",
                                            ref.table->options().dim, " floats, not of ", dim_));
    const TfEngineContext call(context);
    const auto held = ref.table->Hold(*call);
    OP_REQUIRES_OK(context, ToTf(held.status()));
    const int64_t count = held.value()->state().rows;
    tf::Tensor* keys = nullptr;
    tf::Tensor* numbers = nullptr;
    tf::Tensor* values = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, tf::TensorShape({count}), &keys));
    OP_REQUIRES_OK(context, context->allocate_output(1, tf::TensorShape({count}), &numbers));
    OP_REQUIRES_OK(context, context->allocate_output(2, tf::TensorShape({count, dim_}), &values));
    int64_t* next_key = keys->flat<int64_t>().data();
    int64_t* next_number = numbers->flat<int64_t>().data();
    float* next_row = values->flat<float>().data();
    RowsToRead what;
    what.up_to_date = true;
    const Status read = held.value()->ReadRows(what, [&](const RowPiece& piece) {
      next_key = std::copy(piece.keys.begin(), piece.keys.end(), next_key);
      next_number = std::copy(piece.numbers.begin(), piece.numbers.end(), next_number);
      for (const float* row : piece.records) next_row = std::copy_n(row, dim_, next_row);
      return OkStatus();
    });
    OP_REQUIRES_OK(context, ToTf(NamedError(ref.table->options(), read)));
  }

 private:
  int64_t dim_;
};
SOK_KERNEL(TableExportOp, "SokTableExport", "handle", "keys", "rows", "values");

}  // namespace

}  // namespace sok
