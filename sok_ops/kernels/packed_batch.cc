// A group's batch on its way from the host to a GPU, in one block and one copy.
//
// TensorFlow copies each tensor by itself: of 26 SparseTensors 52 that are not pinned, with two streams and a
// thread that asks whether each has arrived. That takes longer than the step.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>

#include "cc/base/object_pool.h"
#include "cc/engine/engine.h"
#include "cc/engine/registry.h"
#include "cc/lookup/narrow_splits.h"
#include "sok_ops/kernels/gpu_kernels.h"
#include "sok_ops/kernels/group_inputs.h"
#include "sok_ops/kernels/state_variant.h"
#include "sok_ops/kernels/tf_engine_context.h"
#include "sok_ops/kernels/tf_status.h"

namespace sok {
namespace {

namespace tf = ::tensorflow;

// TensorFlow checks that tensors are aligned so.
constexpr int64_t kTensorAlignment = 64;
// What one thread reads at once, of any kind of tensor.
constexpr int64_t kPieceBytes = 64 * 1024;
constexpr int64_t kNsPerPiece = 10 * 1000;
constexpr int64_t kMostIds = std::numeric_limits<int32_t>::max();

// Where a tensor is in a batch. Without a dtype, it is left out.
struct PackedTensor {
  tf::DataType dtype = tf::DT_INVALID;
  tf::TensorShape shape;
  int64_t begin = 0;
  int64_t bytes = 0;
};

struct PackedBatch {
  Status status;  // if an error, the rest must not be read
  std::unique_ptr<HostStage> stage;
  std::vector<PackedTensor> tensors;
  int64_t bytes = 0;
};

// How a tensor is packed.
enum class Form {
  kCopied,
  kSplitsOfIndices,  // indices that are in order, as their row splits
  kNarrow,           // row splits, as 32 bits
  kLeftOut,          // the places of weights, which are those of the ids
};

// A tensor of a batch.
class Source {
 public:
  explicit Source(const tf::Tensor* tensor) : tensor_(*tensor) {}

  static Source OfBags(const LookupTensors& lookup);
  // `of_ids` has the same shape.
  static Source OfPlaces(const tf::Tensor* places, const tf::Tensor* of_ids);

  Form form() const { return form_; }
  // Copies the tensor as it is after all. So the device finds what is wrong with it.
  void Copy() { form_ = Form::kCopied; }

  // The tensor can be taken in pieces of this many items.
  int64_t items() const {
    return form_ == Form::kSplitsOfIndices ? tensor_.dim_size(0) : tensor_.NumElements();
  }
  int64_t item_bytes() const {
    return (form_ == Form::kSplitsOfIndices ? 2 : 1) * tf::DataTypeSize(tensor_.dtype());
  }
  // Whether the items may have this form.
  bool Allows(int64_t begin, int64_t end) const;
  PackedTensor Place(int64_t begin) const;
  void Write(int64_t begin, int64_t end, char* to) const;

 private:
  template <typename T>
  const T* data() const {
    return tensor_.flat<T>().data();
  }

  const tf::Tensor& tensor_;
  Form form_ = Form::kCopied;
  int64_t num_bags_ = 0;                // of kSplitsOfIndices
  const tf::Tensor* of_ids_ = nullptr;  // of kLeftOut
};

// Without checks of the values, and without those that the kernel on the GPU makes.
Source Source::OfBags(const LookupTensors& lookup) {
  Source source(lookup.indices != nullptr ? lookup.indices : lookup.row_splits);
  if (lookup.indices == nullptr) {
    source.form_ = Form::kNarrow;
    return source;
  }
  const tf::Tensor& indices = *lookup.indices;
  const int64_t ids = lookup.ids->NumElements();
  const bool is_sparse = indices.dims() == 2 && indices.dim_size(0) == ids && indices.dim_size(1) == 2 &&
                         lookup.dense_shape->dims() == 1 && lookup.dense_shape->NumElements() == 2;
  if (!is_sparse || ids > kMostIds) return source;
  source.num_bags_ = lookup.dense_shape->flat<int64_t>()(0);
  // Of few ids in many bags, the indices take less.
  const bool fewer_bytes = source.num_bags_ >= 0 && source.num_bags_ < 4 * ids && source.num_bags_ < kMostIds;
  if (fewer_bytes) source.form_ = Form::kSplitsOfIndices;
  return source;
}

Source Source::OfPlaces(const tf::Tensor* places, const tf::Tensor* of_ids) {
  Source source(places);
  source.form_ = Form::kLeftOut;
  source.of_ids_ = of_ids;
  return source;
}

bool Source::Allows(int64_t begin, int64_t end) const {
  switch (form_) {
    case Form::kCopied:
      return true;
    case Form::kSplitsOfIndices:
      return AreInOrder(data<int64_t>(), begin, end, num_bags_);
    case Form::kNarrow:
      return AreNarrow(data<int64_t>(), begin, end);
    case Form::kLeftOut:
      return std::equal(data<int64_t>() + begin, data<int64_t>() + end,
                        of_ids_->flat<int64_t>().data() + begin);
  }
  return false;
}

PackedTensor Source::Place(int64_t begin) const {
  PackedTensor place;
  place.begin = begin;
  if (form_ == Form::kLeftOut) return place;
  place.dtype = form_ == Form::kCopied ? tensor_.dtype() : tf::DT_INT32;
  place.shape = form_ == Form::kSplitsOfIndices ? tf::TensorShape({num_bags_ + 1}) : tensor_.shape();
  place.bytes = place.shape.num_elements() * tf::DataTypeSize(place.dtype);
  return place;
}

void Source::Write(int64_t begin, int64_t end, char* to) const {
  auto* const splits = reinterpret_cast<int32_t*>(to);
  switch (form_) {
    case Form::kCopied:
      std::memcpy(to + begin * item_bytes(), tensor_.tensor_data().data() + begin * item_bytes(),
                  static_cast<size_t>((end - begin) * item_bytes()));
      return;
    case Form::kSplitsOfIndices:
      return WriteNarrowSplits(data<int64_t>(), begin, end, items(), num_bags_, splits);
    case Form::kNarrow:
      std::transform(data<int64_t>() + begin, data<int64_t>() + end, splits + begin,
                     [](int64_t split) { return static_cast<int32_t>(split); });
      return;
    case Form::kLeftOut:
      return;
  }
}

// The tensors of a batch: the ids of all lookups, then their bags, then their weights.
std::vector<Source> SourcesOf(const std::vector<LookupTensors>& lookups) {
  std::vector<Source> sources;
  for (const LookupTensors& lookup : lookups) sources.emplace_back(lookup.ids);
  for (const LookupTensors& lookup : lookups) {
    const tf::Tensor* const bags = lookup.indices != nullptr ? lookup.indices : lookup.row_splits;
    if (bags == nullptr) continue;
    sources.push_back(Source::OfBags(lookup));
    if (lookup.places == nullptr) continue;
    if (lookup.places->shape() == bags->shape()) {
      sources.push_back(Source::OfPlaces(lookup.places, bags));
    } else {
      sources.back().Copy();
      sources.emplace_back(lookup.places);
    }
  }
  for (const LookupTensors& lookup : lookups) {
    if (lookup.weights != nullptr) sources.emplace_back(lookup.weights);
  }
  return sources;
}

// Calls body(source's position, begin, end) for all items, on several threads.
template <typename Body>
void ForPieces(TfExecutor* executor, const std::vector<Source>& sources, const Body& body) {
  struct Piece {
    size_t source;
    int64_t begin, end;
  };
  std::vector<Piece> pieces;
  for (size_t s = 0; s < sources.size(); ++s) {
    const int64_t items = sources[s].items();
    const int64_t most = kPieceBytes / sources[s].item_bytes();
    for (int64_t begin = 0; begin < items; begin += most) {
      pieces.push_back({s, begin, std::min(begin + most, items)});
    }
  }
  executor->ParallelFor(static_cast<int64_t>(pieces.size()), kNsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) body(pieces[p].source, pieces[p].begin, pieces[p].end);
  });
}

void ChooseForms(TfExecutor* executor, std::vector<Source>* sources) {
  std::vector<std::atomic<bool>> refuses(sources->size());
  ForPieces(executor, *sources, [&](size_t s, int64_t begin, int64_t end) {
    if (!(*sources)[s].Allows(begin, end)) refuses[s] = true;
  });
  for (size_t s = 0; s < sources->size(); ++s) {
    if (!refuses[s]) continue;
    // The device compares places of weights with those of ids as they are.
    if ((*sources)[s].form() == Form::kLeftOut) (*sources)[s - 1].Copy();
    (*sources)[s].Copy();
  }
}

class PackBatchOp : public tf::OpKernel {
 public:
  explicit PackBatchOp(tf::OpKernelConstruction* construction) : OpKernel(construction) {
    OP_REQUIRES_OK(construction, attributes_.Read(construction));
  }

  void Compute(tf::OpKernelContext* context) override {
    const std::shared_ptr<PackedBatch> batch = TakeShared(batches_);
    // An error must not fail a step of an earlier batch, nor a rank for which others wait.
    batch->status = WithinMemory([&] { return Pack(context, batch.get()); });
    OP_REQUIRES_OK(context, OutputState(context, 0, batch));
  }

 private:
  Status Pack(tf::OpKernelContext* context, PackedBatch* batch) {
    if (batch->stage == nullptr) {
      SOK_ASSIGN_OR_RETURN(Engine* const engine, FindEngine("gpu"));
      batch->stage = engine->NewHostStage();
    }
    TfExecutor executor(context);
    std::vector<Source> sources = SourcesOf(InputTensors(context, 0, attributes_, {}));
    ChooseForms(&executor, &sources);
    batch->tensors.clear();
    batch->bytes = 0;
    for (const Source& source : sources) {
      batch->tensors.push_back(source.Place(batch->bytes));
      batch->bytes +=
          (batch->tensors.back().bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    }
    if (batch->bytes == 0) return OkStatus();
    SOK_ASSIGN_OR_RETURN(char* const memory, batch->stage->Allocate(batch->bytes));
    ForPieces(&executor, sources, [&](size_t s, int64_t begin, int64_t end) {
      sources[s].Write(begin, end, memory + batch->tensors[s].begin);
    });
    return OkStatus();
  }

  GroupAttributes attributes_;
  const std::shared_ptr<ObjectPool<PackedBatch>> batches_ = std::make_shared<ObjectPool<PackedBatch>>();
};
REGISTER_KERNEL_BUILDER(Name("SokPackBatch").Device(tf::DEVICE_CPU), PackBatchOp);

// The number of tensors in a batch of the packed lookups.
size_t NumPacked(const GroupAttributes& attributes) {
  size_t number = 0;
  for (size_t l = 0; l < attributes.packed.size(); ++l) {
    if (!attributes.packed[l]) continue;
    number += 1 + attributes.tensors[l].bag_inputs + (attributes.specs[l].weighted ? 1 : 0);
  }
  return number;
}

}  // namespace

tf::Status UnpackBatch(tf::OpKernelContext* context, int index, const GroupAttributes& attributes,
                       std::vector<tf::Tensor>* tensors) {
  const auto* const batch = StateIn<PackedBatch>(context->input(index));
  if (batch == nullptr) {
    return tf::errors::InvalidArgument(context->op_kernel().type_string(),
                                       ": `batch` is no output of SokPackBatch");
  }
  TF_RETURN_IF_ERROR(ToTf(batch->status));
  if (batch->tensors.size() != NumPacked(attributes)) {
    return tf::errors::InvalidArgument(context->op_kernel().type_string(), ": `batch` has ",
                                       batch->tensors.size(), " tensors, but the packed lookups have ",
                                       NumPacked(attributes));
  }
  tf::Tensor block;
  TF_RETURN_IF_ERROR(context->allocate_temp(tf::DT_UINT8, tf::TensorShape({batch->bytes}), &block));
  if (batch->bytes > 0) {
    const TfEngineContext call(context);
    TF_RETURN_IF_ERROR(ToTf(batch->stage->Send(*call, batch->bytes, block.flat<uint8_t>().data())));
  }
  for (const PackedTensor& packed : batch->tensors) {
    tensors->emplace_back(tf::DT_INVALID);
    if (packed.dtype == tf::DT_INVALID) continue;
    TF_RETURN_IF_ERROR(tensors->back().BitcastFrom(block.Slice(packed.begin, packed.begin + packed.bytes),
                                                   packed.dtype, packed.shape));
  }
  return tf::Status();
}

}  // namespace sok
