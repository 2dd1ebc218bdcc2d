#include "sok_ops/kernels/resources.h"

#include "sok_ops/kernels/tf_versions.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/framework/function.h"

namespace sok {

namespace tf = ::tensorflow;

namespace {

constexpr char kContainer[] = "sok";
constexpr char kRuntimeName[] = "runtime";

// The resources of the first CPU beside the kernel's device, which all devices of a session find. Each
// device, also each of several CPUs, has resources of its own, and sok.Init runs on the first CPU.
tf::ResourceMgr* SharedResources(tf::OpKernelContext* context) {
  tf::FunctionLibraryRuntime* const library = context->function_library();
  tf::Device* cpu = nullptr;
  if (library == nullptr || library->device_mgr() == nullptr ||
      !library->device_mgr()->LookupDevice("CPU:0", &cpu).ok()) {
    return context->resource_manager();
  }
  return cpu->resource_manager();
}

}  // namespace

tf::Status CreateRuntime(tf::OpKernelContext* context, tf::core::RefCountPtr<Runtime> runtime) {
  return SharedResources(context)->Create(kContainer, kRuntimeName, runtime.release());
}

tf::Status LookupRuntime(tf::OpKernelContext* context, const std::string& who,
                         tf::core::RefCountPtr<Runtime>* runtime) {
  Runtime* found = nullptr;
  if (!SharedResources(context)->Lookup<Runtime>(kContainer, kRuntimeName, &found).ok()) {
    return tf::errors::FailedPrecondition(
        who, " needs sok.Init: run the tensor that sok.Init(global_batch_size=...) returns in this session, ",
        "before any variable initializer");
  }
  runtime->reset(found);
  return tf::Status();
}

tf::Status TableHandle(tf::OpKernelContext* context, int index, const tf::ResourceHandle** handle) {
  if (context->input(index).NumElements() != 1) {
    return tf::errors::InvalidArgument("Input ", index, " of ", context->op_kernel().name(),
                                       " must be a single handle but has shape ",
                                       context->input(index).shape().DebugString());
  }
  *handle = &context->input(index).flat<tf::ResourceHandle>()(0);
  if ((*handle)->hash_code() != IndexOfType<TableResource>().hash_code()) {
    return tf::errors::InvalidArgument("Input ", index, " of ", context->op_kernel().name(),
                                       " is not the handle of an embedding variable but of '",
                                       (*handle)->name(), "'");
  }
  return tf::Status();
}

tf::Status LookupTable(tf::OpKernelContext* context, int index, TableRef* table, TableUse use) {
  const tf::ResourceHandle* found_handle = nullptr;
  TF_RETURN_IF_ERROR(TableHandle(context, index, &found_handle));
  const tf::ResourceHandle& handle = *found_handle;
  const auto who = [&handle] { return StrCat("Embedding variable '", handle.name(), "'"); };
  TableResource* found = nullptr;
  if (tf::LookupResource(context, handle, &found).ok()) {
    table->resource.reset(found);
    table->table = found->table();
    if (use != TableUse::kMessages && table->table->options().rank == kNoRank) {
      return tf::errors::FailedPrecondition(
          "Embedding variable '", table->name(), "' is in parts on ", table->table->options().ranks,
          " parameter servers; this process only has its description, which ",
          context->op_kernel().type_string(), " cannot use");
    }
    const std::string lost = use == TableUse::kRestore ? "" : found->lost();
    if (lost.empty()) return tf::Status();
    return tf::errors::FailedPrecondition(
        who(), " has lost its rows, because a restore failed or has not ended: restore it again, or run its ",
        "initializer (", lost, ")");
  }
  tf::core::RefCountPtr<Runtime> runtime;
  TF_RETURN_IF_ERROR(LookupRuntime(context, who(), &runtime));
  return tf::errors::FailedPrecondition(
      who(), " is not initialized: run its initializer or tf.compat.v1.global_variables_initializer()");
}

TablesOp::TablesOp(tensorflow::OpKernelConstruction* construction) : OpKernel(construction) {
  OP_REQUIRES_OK(construction, construction->GetAttr("num_tables", &num_tables_));
}

tensorflow::Status TablesOp::ReadNames(tensorflow::OpKernelConstruction* construction, bool required,
                                       std::vector<std::string>* names) const {
  TF_RETURN_IF_ERROR(construction->GetAttr("names", names));
  const bool fits = names->size() == static_cast<size_t>(num_tables_) || (names->empty() && !required);
  if (fits) return tensorflow::Status();
  return tensorflow::errors::InvalidArgument("`names` has ", names->size(), " names for ", num_tables_,
                                             " tables");
}

}  // namespace sok
