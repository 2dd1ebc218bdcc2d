#ifndef SOK_SOK_OPS_KERNELS_TF_VERSIONS_H_
#define SOK_SOK_OPS_KERNELS_TF_VERSIONS_H_

// What differs between TensorFlow 1.15 and 2, so that the rest of sok_ops/ is written once. Must be included
// before every other TensorFlow header. tensorflow_prelude.h, with which all files here are compiled, begins
// with it.

#include <cstdint>
#include <string>
#include <vector>

#include "tensorflow/core/public/version.h"

#if TF_MAJOR_VERSION == 1
#define SOK_TF_1 1
#endif

#ifdef SOK_TF_1
// TensorFlow 1.15 was compiled as C++11, where abseil defines these classes itself. In C++17, abseil would
// use those of std instead, which compiles but does not link.
#include "absl/base/config.h"
#undef ABSL_HAVE_STD_ANY
#undef ABSL_HAVE_STD_OPTIONAL
#undef ABSL_HAVE_STD_STRING_VIEW
#undef ABSL_HAVE_STD_VARIANT
#endif

#ifdef SOK_TF_1
#include "tensorflow/core/common_runtime/dma_helper.h"
#endif
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/tensor_shape.h"
#include "tensorflow/core/framework/type_index.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/lib/core/errors.h"
#include "tensorflow/core/lib/core/status.h"
#ifdef SOK_TF_1
#include "tensorflow/core/util/overflow.h"
#endif

#ifdef SOK_TF_1
namespace tensorflow {

// Its int64 is `long long`. These let the same code use int64_t, which is `long` and has the same bits.
static_assert(sizeof(int64) == sizeof(int64_t));

template <>
struct IsValidDataType<int64_t> {
  static constexpr bool value = true;
};

template <>
struct DataTypeToEnum<int64_t> {
  static DataType v() { return DT_INT64; }
  static DataType ref() { return DT_INT64_REF; }
  static constexpr DataType value = DT_INT64;
};

inline Status GetNodeAttr(const AttrSlice& attributes, StringPiece name, int64_t* value) {
  int64 found = 0;
  TF_RETURN_IF_ERROR(GetNodeAttr(attributes, name, &found));
  *value = found;
  return Status::OK();
}

inline Status GetNodeAttr(const AttrSlice& attributes, StringPiece name, std::vector<int64_t>* values) {
  std::vector<int64> found;
  TF_RETURN_IF_ERROR(GetNodeAttr(attributes, name, &found));
  values->assign(found.begin(), found.end());
  return Status::OK();
}

}  // namespace tensorflow
#endif

namespace sok {

// The message of a TensorFlow status.
inline std::string MessageOf(const tensorflow::Status& status) {
#ifdef SOK_TF_1
  return status.error_message();
#else
  return std::string(status.message());
#endif
}

// Appends a dimension, unless it is negative, or there would be too many dimensions or elements.
inline tensorflow::Status AddDim(int64_t size, tensorflow::TensorShape* shape) {
#ifdef SOK_TF_1
  const bool fits = size >= 0 && shape->dims() < tensorflow::TensorShape::MaxDimensions() &&
                    tensorflow::MultiplyWithoutOverflow(shape->num_elements(), size) >= 0;
  if (!fits) {
    return tensorflow::errors::InvalidArgument("A shape cannot have ", size, " after ", shape->DebugString());
  }
  shape->AddDim(size);
  return tensorflow::Status::OK();
#else
  return shape->AddDimWithStatus(size);
#endif
}

// Whether no other tensor shares the memory of this one, which must not be empty.
inline bool HasMemoryAlone(const tensorflow::Tensor& tensor) {
#ifdef SOK_TF_1
  return tensorflow::DMAHelper::buffer(&tensor)->RefCountIsOne();
#else
  return tensor.RefCountIsOne();
#endif
}

// TensorFlow's identifier of a type of resource or variant value.
template <typename T>
tensorflow::TypeIndex IndexOfType() {
#ifdef SOK_TF_1
  return tensorflow::MakeTypeIndex<T>();
#else
  return tensorflow::TypeIndex::Make<T>();
#endif
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_TF_VERSIONS_H_
