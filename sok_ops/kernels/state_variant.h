#ifndef SOK_SOK_OPS_KERNELS_STATE_VARIANT_H_
#define SOK_SOK_OPS_KERNELS_STATE_VARIANT_H_

#include <memory>
#include <string>
#include <utility>

#include "sok_ops/kernels/scalars.h"
#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"
#include "tensorflow/core/framework/variant.h"
#include "tensorflow/core/framework/variant_encode_decode.h"
#include "tensorflow/core/framework/variant_op_registry.h"

namespace sok {

// State that one kernel passes to a later one, in a scalar variant tensor. It cannot be serialized. Read-only
// once it is in the tensor.
template <typename T>
struct StateVariant {
  std::shared_ptr<const T> state;

  std::string TypeName() const { return std::string("sok::") + typeid(T).name(); }
  std::string DebugString() const { return TypeName(); }
  void Encode(tensorflow::VariantTensorData* /*data*/) const {}
  bool Decode(const tensorflow::VariantTensorData& /*data*/) { return false; }
};

// Registers copies of such tensors between the host and a GPU, which TensorFlow makes when they leave a
// tf.function. The state itself is not copied. Returns true.
template <typename T>
bool ShareStateAmongDevices() {
  namespace registration = tensorflow::variant_op_registry_fn_registration;
  for (const auto direction :
       {tensorflow::HOST_TO_DEVICE, tensorflow::DEVICE_TO_HOST, tensorflow::DEVICE_TO_DEVICE}) {
    registration::UnaryVariantDeviceCopyRegistration<StateVariant<T>>(
        direction, IndexOfType<StateVariant<T>>(),
        [](const StateVariant<T>& from, StateVariant<T>* to,
           const tensorflow::UnaryVariantOpRegistry::AsyncTensorDeviceCopyFn& /*copy*/) {
          *to = from;
          return tensorflow::Status();
        });
  }
  return true;
}

// Initialized when the library is loaded, for each state that OutputState stores.
template <typename T>
inline const bool kStateIsShared = ShareStateAmongDevices<T>();

// Stores `state` in a kernel's output.
template <typename T>
tensorflow::Status OutputState(tensorflow::OpKernelContext* context, int output, std::shared_ptr<T> state) {
  static_cast<void>(kStateIsShared<T>);
  return OutputScalar<tensorflow::Variant>(context, output, StateVariant<T>{std::move(state)});
}

// The state in `tensor`; null if it holds something else.
template <typename T>
const T* StateIn(const tensorflow::Tensor& tensor) {
  if (tensor.dtype() != tensorflow::DT_VARIANT || tensor.NumElements() != 1) return nullptr;
  const auto* variant = tensor.flat<tensorflow::Variant>()(0).get<StateVariant<T>>();
  return variant == nullptr ? nullptr : variant->state.get();
}

}  // namespace sok

#endif  // SOK_SOK_OPS_KERNELS_STATE_VARIANT_H_
