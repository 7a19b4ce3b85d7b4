# ccs_cuda_architectures(<variable> <toolkit version>): the GPU architectures that the CUDA module is
# built for by default: machine code for A100, H100/H200 and B200, and PTX of the newest, which later
# GPUs compile by themselves. Toolkits before 12.8 do not know B200 (100).
function(ccs_cuda_architectures out version)
  if(version VERSION_LESS 12.8)
    set(${out} "80-real;90" PARENT_SCOPE)
  else()
    set(${out} "80-real;90-real;100" PARENT_SCOPE)
  endif()
endfunction()
